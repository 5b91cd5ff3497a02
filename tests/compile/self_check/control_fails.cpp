// expect: invalid conversion|cannot initialize
int f(const char* text) {
    int a = text;
    return a;
}
