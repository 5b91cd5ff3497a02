// expect: invalid conversion|cannot initialize
// (Nothing is wrong here: the check must pass.)
int g(int value) {
    return value;
}

#ifdef MUST_NOT_COMPILE
int f(const char* text) {
    int a = text; // bad
    return g(a);
}
#endif
