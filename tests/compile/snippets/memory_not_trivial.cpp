// expect-gcc: no matching function
// expect-clang: no matching (constructor|function)
// expect-gcc: contiguous_range
// expect-gcc: of_trivially_copyable_objects
// expect-clang: contiguous_range
// expect-clang: of_trivially_copyable_objects
//
// Hardware reads and writes bytes. Objects that own something else do not survive that.
#include <rdmaxx/verbs/mr.hpp>

#include <array>
#include <list>
#include <memory>
#include <string>
#include <vector>

struct message {
    char text[64];
    int length;
};

void control(rdmaxx::pd& pd, std::vector<message>& messages, std::array<unsigned, 4>& counters, std::string& text) {
    const rdmaxx::mr a(pd, messages);
    const rdmaxx::mr b(pd, counters);
    const rdmaxx::mr c(pd, text); // its characters
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::pd& pd, std::vector<std::string>& texts, std::vector<std::unique_ptr<int>>& pointers,
       std::list<int>& scattered, message& one) {
    rdmaxx::mr a(pd, texts);     // bad
    rdmaxx::mr b(pd, pointers);  // bad
    rdmaxx::mr c(pd, scattered); // bad
    rdmaxx::mr d(pd, one);       // bad
}
#endif
