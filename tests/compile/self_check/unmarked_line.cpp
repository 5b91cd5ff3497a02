// expect: invalid conversion|cannot initialize
int g(int value) {
    return value;
}

#ifdef MUST_NOT_COMPILE
int f(const char* text) {
    int a = text; // bad
    // What surrounds the bad lines must be right:
    int b = undeclared_name;
    return g(a) + g(b);
}
#endif
