// expect: invalid conversion
#ifdef MUST_NOT_COMPILE
int f() {
    return undeclared_name; // the words "invalid conversion" stand in the source only
}
#endif
