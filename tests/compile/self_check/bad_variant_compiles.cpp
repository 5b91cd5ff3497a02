// expect: invalid conversion|cannot initialize
#ifdef MUST_NOT_COMPILE
int f(int value) {
    return value;
}
#endif
