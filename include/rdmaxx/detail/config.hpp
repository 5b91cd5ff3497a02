// Compiler attributes behind one set of names. Nothing here changes what a function does: a macro that switched code
// inside an inline function would give two translation units two definitions of it.
#ifndef RDMAXX_DETAIL_CONFIG_HPP
#define RDMAXX_DETAIL_CONFIG_HPP

#if !defined(__cplusplus) || __cplusplus < 202002L
#    error "rdmaxx needs C++20: compile with -std=c++20 or later"
#endif

// What several shared libraries in one process must share (categories, hooks, the exception type).
#define RDMAXX_EXPORT __attribute__((visibility("default")))

// Off the hot path: keeps the code that builds an exception out of the functions that rarely throw one.
#define RDMAXX_COLD __attribute__((cold, noinline))

// What refers to what (-Wdangling). A work request that is copied out of a chain of setters is followed to its SGEs by
// the other two (-Wdangling-gsl): the request is a pointer, and an SGE owns what it points to.
#if defined(__clang__)
#    define RDMAXX_LIFETIMEBOUND [[clang::lifetimebound]]
#    define RDMAXX_POINTER [[gsl::Pointer]]
#    define RDMAXX_OWNER [[gsl::Owner]]
#    define RDMAXX_CLANG(attribute) __attribute__((attribute))
#else
#    define RDMAXX_LIFETIMEBOUND
#    define RDMAXX_POINTER
#    define RDMAXX_OWNER
#    define RDMAXX_CLANG(attribute)
#endif

// Typestate (-Wconsumed): an event is unconsumed until it is acked or moved from.
#define RDMAXX_CONSUMABLE(state) RDMAXX_CLANG(consumable(state)) RDMAXX_CLANG(consumable_auto_cast_state)
#define RDMAXX_CALLABLE_WHEN(...) RDMAXX_CLANG(callable_when(__VA_ARGS__))
#define RDMAXX_SET_TYPESTATE(state) RDMAXX_CLANG(set_typestate(state))
#define RDMAXX_RETURN_TYPESTATE(state) RDMAXX_CLANG(return_typestate(state))
#define RDMAXX_TEST_TYPESTATE(state) RDMAXX_CLANG(test_typestate(state))

// Lock discipline (-Wthread-safety).
#define RDMAXX_CAPABILITY(name) RDMAXX_CLANG(capability(name))
#define RDMAXX_SCOPED_CAPABILITY RDMAXX_CLANG(scoped_lockable)
#define RDMAXX_GUARDED_BY(lock) RDMAXX_CLANG(guarded_by(lock))
#define RDMAXX_REQUIRES(...) RDMAXX_CLANG(requires_capability(__VA_ARGS__))
#define RDMAXX_ACQUIRE(...) RDMAXX_CLANG(acquire_capability(__VA_ARGS__))
#define RDMAXX_RELEASE(...) RDMAXX_CLANG(release_capability(__VA_ARGS__))

#endif
