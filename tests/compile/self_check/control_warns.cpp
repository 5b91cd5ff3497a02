// expect: invalid conversion|cannot initialize
#warning "a control must be free of them"

#ifdef MUST_NOT_COMPILE
int f(const char* text) {
    int a = text; // bad
    return a;
}
#endif
