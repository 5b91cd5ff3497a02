// expect: invalid conversion|cannot initialize
#ifdef MUST_NOT_COMPILE
int f() {
    return undeclared_name;
}
#endif
