// expect: invalid conversion|cannot initialize
int g(int value) {
    return value;
}

#ifdef MUST_NOT_COMPILE
int f(const char* text) {
    int a = text; // bad
    // The next line is fine, so the other one must not speak for it:
    int b = 2; // bad
    return g(a) + g(b);
}
#endif
