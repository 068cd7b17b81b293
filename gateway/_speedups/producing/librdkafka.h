/* The used part of librdkafka's public interface (rdkafka.h), whose header need not be installed.
 *
 * The functions are those of the library that confluent-kafka has loaded. Names, numbers and
 * signatures are part of its stable ABI.
 */
#ifndef PGSLUICE_LIBRDKAFKA_H
#define PGSLUICE_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef int rd_kafka_resp_err_t;

enum { RD_KAFKA_RESP_ERR__INVALID_ARG = -186, RD_KAFKA_RESP_ERR_NO_ERROR = 0 };

/* Tags of rd_kafka_producev's arguments. */
enum {
    RD_KAFKA_VTYPE_END = 0,
    RD_KAFKA_VTYPE_RKT = 2,
    RD_KAFKA_VTYPE_PARTITION = 3,
    RD_KAFKA_VTYPE_VALUE = 4,
    RD_KAFKA_VTYPE_KEY = 5,
    RD_KAFKA_VTYPE_MSGFLAGS = 7,
    RD_KAFKA_VTYPE_HEADERS = 10,
};
enum { RD_KAFKA_MSG_F_COPY = 0x2 };

typedef rd_kafka_resp_err_t on_new_t(rd_kafka_t *client, const rd_kafka_conf_t *conf, void *opaque,
                                     char *text, size_t size);

typedef struct {
    rd_kafka_resp_err_t (*producev)(rd_kafka_t *client, ...);
    rd_kafka_topic_t *(*topic_new)(rd_kafka_t *client, const char *name,
                                   rd_kafka_topic_conf_t *conf);
    void (*topic_destroy)(rd_kafka_topic_t *topic);
    rd_kafka_headers_t *(*headers_new)(size_t count);
    rd_kafka_headers_t *(*headers_copy)(const rd_kafka_headers_t *headers);
    rd_kafka_resp_err_t (*header_add)(rd_kafka_headers_t *headers, const char *name,
                                      ssize_t name_size, const void *value, ssize_t value_size);
    void (*headers_destroy)(rd_kafka_headers_t *headers);
    rd_kafka_resp_err_t (*add_on_new)(rd_kafka_conf_t *conf, const char *name, on_new_t *on_new,
                                      void *opaque);
} Librdkafka;

#endif
