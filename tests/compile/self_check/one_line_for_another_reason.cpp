// expect: invalid conversion|cannot initialize
int g(int value) {
    return value;
}

#ifdef MUST_NOT_COMPILE
int f(const char* text) {
    int a = text; // bad
    // A typing error is no proof:
    int b = g(undeclared_name); // bad
    return g(a) + g(b);
}
#endif
