/* What the test programs have in common. Each of these ends the process if something is not so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                           \
    do {                                                                                                      \
        mp_status status_ = (call);                                                                           \
        if (status_ != MP_OK) {                                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, mp_status_name(status_), mp_last_error()); \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, __LINE__, #condition, mp_last_error()); \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The call fails in this way, and its text has these words. */
#define REFUSED(call, expected, words)                                                                        \
    do {                                                                                                      \
        mp_status status_ = (call);                                                                           \
        if (status_ != (expected) || strstr(mp_last_error(), (words)) == NULL) {                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, mp_status_name(status_), mp_last_error()); \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)
