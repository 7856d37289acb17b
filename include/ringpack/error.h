/* SPDX-License-Identifier: Apache-2.0 */
/* error.h — error codes and messages.
 *
 * A function that can fail returns an int: 0 or a count on success, a negative code on failure.
 * Codes -1 .. -4095 are negated errno values, of failed system calls. Codes below -5000 are
 * ringpack's own, listed below. The ranges cannot overlap, because Linux returns no errno above
 * 4095.
 *
 * Details are written to an optional struct rp_error that the caller owns; NULL is allowed
 * everywhere. Its content is defined only after a function has returned a negative code, unless
 * the function says otherwise. */
#ifndef RINGPACK_ERROR_H
#define RINGPACK_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#define RP_API __attribute__((visibility("default")))
#define RP_MUST_CHECK __attribute__((warn_unused_result))

/* name, code, text */
#define RP_ERROR_CODES(X)                                                                          \
    X(RP_E_USAGE, 5001, "the call or the command line is wrong")                                   \
    X(RP_E_CONFIG, 5002, "the configuration is wrong")                                             \
    X(RP_E_FORMAT, 5003, "the file is not of the expected format")                                 \
    X(RP_E_CORRUPT, 5004, "the data is damaged")                                                   \
    X(RP_E_MISMATCH, 5005, "the state belongs to another stream")                                  \
    X(RP_E_VERSION, 5006, "written by an incompatible version")                                    \
    X(RP_E_CHANGED, 5007, "a file changed while it was in use")                                    \
    X(RP_E_VOCABULARY, 5008, "a token id lies outside the declared vocabulary")                    \
    X(RP_E_EMPTY, 5009, "there is nothing to read")                                                \
    X(RP_E_RESOURCE, 5010, "the machine does not have what was asked for")                         \
    X(RP_E_BUSY, 5011, "another process is using it")                                              \
    X(RP_E_GONE, 5012, "the other side is gone")                                                   \
    X(RP_E_TIMEOUT, 5013, "it did not happen in time")                                             \
    X(RP_E_PROTOCOL, 5014, "the other side broke the protocol")                                    \
    X(RP_E_DIFFERS, 5015, "checked, and it differs")                                               \
    X(RP_E_STOPPED, 5016, "the engine was asked to stop")                                          \
    X(RP_E_CONCURRENT, 5017, "another thread is inside a call of this client")

enum rp_error_code {
#define RP_ERROR_ENUM(name, code, text) name = code,
    RP_ERROR_CODES(RP_ERROR_ENUM)
#undef RP_ERROR_ENUM
};

/** A failure, and the next step. Both strings are always terminated. The size of the struct never
 * changes, so it has no struct_size. */
struct rp_error {
    int code;          /* the negative code that was returned */
    char message[768]; /* the failure: call, object, expected and found */
    char hint[384];    /* what is safe, and the next command; may be empty */
};

/** Text of a negative code: strerror for a negated errno, the table above for ringpack's codes.
 * Never NULL. */
RP_API const char *rp_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif
