/* Produces many records in one call, over the client that confluent-kafka has made.
 *
 * Why: Producer.produce costs a call from Python for each record and, for each delivery, the lock
 * of the interpreter, also where nobody has asked for a report. Here the lock is free while records
 * are handed over, and what is delivered without a report asked for costs nothing in Python.
 *
 * The client's handle is not in confluent-kafka's interface. It is in librdkafka's: this module is
 * named as its plugin (plugin.library.paths), and is notified of each client that is made with that
 * property (conf_init, on_new). It owns nothing of the client: `Batches` is of use for as long as
 * the Producer lives, and whoever holds both takes care of that (gateway.sink.delivery.batches).
 */
#include "../layouts.h"
#include "../library.h"

#include "librdkafka.h"

#define BLOCK 16384 /* large: whoever gives up the interpreter's lock may wait for it for long */
#define TOPICS 1024 /* a power of two; librdkafka finds a topic by looking at one after the other */
#define PROBES 8
#define PLACES 1024

static Librdkafka kafka;
static _Thread_local rd_kafka_t *made;

typedef struct {
    PyObject *record;
    const char *topic;
    const char *key, *value;
    Py_ssize_t key_size, value_size;
    rd_kafka_headers_t *headers; /* one for all records in a row that share the list */
    int32_t partition;
} Entry;

typedef struct {
    const char *name;
    rd_kafka_topic_t *topic;
} Topic;

typedef struct {
    PyObject ob_base;
    rd_kafka_t *client;
} Batches;

/* Return where to look for an address in a table whose size is a power of two. */
static size_t slot_of(const void *address, size_t slots)
{
    return (size_t)(((uint64_t)(uintptr_t)address * 0x9E3779B97F4A7C15u) >> 32) % slots;
}

/* librdkafka's side: which client was made last in this thread. */

static rd_kafka_resp_err_t on_new(rd_kafka_t *client, const rd_kafka_conf_t *conf, void *opaque,
                                  char *text, size_t size)
{
    (void)conf, (void)opaque, (void)text, (void)size;
    made = client;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

__attribute__((visibility("default"))) rd_kafka_resp_err_t
conf_init(rd_kafka_conf_t *conf, void **opaque, char *text, size_t size)
{
    (void)opaque, (void)text, (void)size;
    if (kafka.add_on_new == NULL)
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    return kafka.add_on_new(conf, "pgsluice", on_new, NULL);
}

/* Gathering: with the lock of the interpreter. */

static int gather_headers(Entry *entry, PyObject *list)
{
    Py_ssize_t count;

    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "headers are a list");
        return -1;
    }
    count = PyList_Size(list);
    entry->headers = kafka.headers_new((size_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *header = PyList_GetItem(list, i);
        Py_ssize_t name_size, size;
        const char *name;
        char *value;

        if (header == NULL || !has_layout(header, KAFKA_HEADER_SIZE, "header"))
            return -1;
        name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(header, KAFKA_HEADER_NAME), &name_size);
        if (name == NULL ||
            PyBytes_AsStringAndSize(PyTuple_GetItem(header, KAFKA_HEADER_VALUE), &value, &size) < 0)
            return -1;
        if (kafka.header_add(entry->headers, name, name_size, value, size) != 0) {
            PyErr_SetString(PyExc_ValueError, "librdkafka does not accept a header");
            return -1;
        }
    }
    return 0;
}

static int gather_bytes(PyObject *from, const char **bytes, Py_ssize_t *size)
{
    char *found;

    *bytes = NULL;
    *size = 0;
    if (from == Py_None)
        return 0;
    if (PyBytes_AsStringAndSize(from, &found, size) < 0)
        return -1;
    *bytes = found;
    return 0;
}

/* Fill an entry from a record, to which it keeps a reference; `before` is the entry in front, or
 * NULL. */
static int gather(Entry *entry, PyObject *record, const Entry *before)
{
    PyObject *headers;
    long partition;

    memset(entry, 0, sizeof *entry);
    Py_INCREF(record);
    entry->record = record;
    if (!has_layout(record, RECORD_SIZE, "record"))
        return -1;
    entry->topic = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(record, RECORD_TOPIC), NULL);
    partition = PyLong_AsLong(PyTuple_GetItem(record, RECORD_PARTITION));
    if (entry->topic == NULL || (partition == -1 && PyErr_Occurred()))
        return -1;
    if (partition < 0 || partition > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there is no such partition");
        return -1;
    }
    entry->partition = (int32_t)partition;
    if (gather_bytes(PyTuple_GetItem(record, RECORD_KEY), &entry->key, &entry->key_size) < 0 ||
        gather_bytes(PyTuple_GetItem(record, RECORD_VALUE), &entry->value, &entry->value_size) < 0)
        return -1;
    headers = PyTuple_GetItem(record, RECORD_HEADERS);
    if (before != NULL && PyTuple_GetItem(before->record, RECORD_HEADERS) == headers) {
        entry->headers = before->headers;
        return 0;
    }
    return gather_headers(entry, headers);
}

/* Producing: without the lock. */

static rd_kafka_topic_t *topic_of(Topic *topics, rd_kafka_t *client, const char *name)
{
    size_t first = slot_of(name, TOPICS);
    Topic *topic = &topics[first];

    for (size_t i = 1; topic->name != NULL && topic->name != name && i < PROBES; i++)
        topic = &topics[(first + i) % TOPICS];
    if (topic->name != name) {
        if (topic->topic != NULL)
            kafka.topic_destroy(topic->topic);
        topic->topic = kafka.topic_new(client, name, NULL);
        topic->name = topic->topic == NULL ? NULL : name;
    }
    return topic->topic;
}

/* Whether `entry` is the last that uses its headers. */
static int is_last_user(const Entry *entry, const Entry *end)
{
    return entry + 1 == end || entry[1].headers != entry->headers;
}

/* Hand over; return the first entry that librdkafka has not accepted, and why. */
static Entry *hand_over(rd_kafka_t *client, Entry *entry, Entry *end, rd_kafka_resp_err_t *error)
{
    Topic topics[TOPICS] = {{NULL, NULL}};

    for (*error = RD_KAFKA_RESP_ERR_NO_ERROR; entry < end; entry++) {
        rd_kafka_topic_t *topic = topic_of(topics, client, entry->topic);
        int is_last = is_last_user(entry, end);
        rd_kafka_headers_t *headers = entry->headers;

        *error = RD_KAFKA_RESP_ERR__INVALID_ARG;
        if (topic == NULL)
            break;
        if (!is_last)
            headers = kafka.headers_copy(headers);
        *error = kafka.producev(
            client, RD_KAFKA_VTYPE_MSGFLAGS, (int)RD_KAFKA_MSG_F_COPY, RD_KAFKA_VTYPE_RKT, topic,
            RD_KAFKA_VTYPE_PARTITION, (int)entry->partition, RD_KAFKA_VTYPE_KEY,
            (void *)entry->key, (size_t)entry->key_size, RD_KAFKA_VTYPE_VALUE, (void *)entry->value,
            (size_t)entry->value_size, RD_KAFKA_VTYPE_HEADERS, headers, RD_KAFKA_VTYPE_END);
        if (*error != RD_KAFKA_RESP_ERR_NO_ERROR) { /* the headers are still ours */
            if (!is_last)
                kafka.headers_destroy(headers);
            break;
        }
    }
    for (int i = 0; i < TOPICS; i++)
        if (topics[i].topic != NULL)
            kafka.topic_destroy(topics[i].topic);
    return entry;
}

/* Let go of entries; the headers of those in front of `left` belong to librdkafka. */
static void release(Entry *entries, Entry *left, Entry *end)
{
    for (Entry *entry = entries; entry < end; entry++) {
        if (entry >= left && entry->headers != NULL && is_last_user(entry, end))
            kafka.headers_destroy(entry->headers);
        Py_DECREF(entry->record);
    }
}

PyDoc_STRVAR(produce_doc, "produce(records, first, end) -> (first that was not accepted, error)");

static PyObject *batches_produce(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    enum { RECORDS, FIRST, END, PRODUCE_ARGUMENTS };
    rd_kafka_t *client = ((Batches *)self)->client;
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    Py_ssize_t place, end, room;
    Entry *entries;
    int failed = 0;

    if (count != PRODUCE_ARGUMENTS || !PyList_Check(arguments[RECORDS])) {
        PyErr_SetString(PyExc_TypeError, "produce takes a list and two places");
        return NULL;
    }
    place = PyLong_AsSsize_t(arguments[FIRST]);
    end = PyLong_AsSsize_t(arguments[END]);
    if (PyErr_Occurred())
        return NULL;
    if (place < 0 || end > PyList_Size(arguments[RECORDS])) {
        PyErr_SetString(PyExc_ValueError, "there is no such place");
        return NULL;
    }
    room = end - place < BLOCK ? end - place : BLOCK;
    entries = PyMem_Malloc((size_t)(room > 0 ? room : 1) * sizeof *entries);
    if (entries == NULL)
        return PyErr_NoMemory();
    while (!failed && error == RD_KAFKA_RESP_ERR_NO_ERROR && place < end) {
        Entry *upto = entries, *left = entries;

        while (!failed && upto < entries + room && place + (upto - entries) < end) {
            PyObject *record = PyList_GetItem(arguments[RECORDS], place + (upto - entries));

            if (record == NULL) {
                failed = 1;
                break;
            }
            failed = gather(upto, record, upto == entries ? NULL : upto - 1) < 0;
            upto++;
        }
        if (!failed) {
            Py_BEGIN_ALLOW_THREADS
            left = hand_over(client, entries, upto, &error);
            Py_END_ALLOW_THREADS
        }
        place += left - entries;
        release(entries, left, upto);
    }
    PyMem_Free(entries);
    return failed ? NULL : Py_BuildValue("(ni)", place, error);
}

static void batches_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef batches_methods[] = {
    {"produce", (PyCFunction)(void (*)(void))batches_produce, METH_FASTCALL, produce_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batches_slots[] = {
    {Py_tp_dealloc, batches_dealloc},
    {Py_tp_methods, batches_methods},
    {0, NULL},
};

static PyType_Spec batches_spec = {
    .name = "gateway._speedups._producing.Batches",
    .basicsize = sizeof(Batches),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batches_slots,
};

static PyTypeObject *batches_type;

PyDoc_STRVAR(load_doc, "load(path) -> whether the library at path, which is loaded, has it all");

static PyObject *load(PyObject *module, PyObject *path)
{
    static const char *const names[] = {
        "rd_kafka_producev",       "rd_kafka_topic_new",    "rd_kafka_topic_destroy",
        "rd_kafka_headers_new",    "rd_kafka_headers_copy", "rd_kafka_header_add",
        "rd_kafka_headers_destroy", "rd_kafka_conf_interceptor_add_on_new",
    };

    (void)module;
    _Static_assert(sizeof names == sizeof kafka, "a name for each function");
    return library_find(path, names, sizeof names / sizeof *names, &kafka);
}

PyDoc_STRVAR(pop_doc, "pop() -> Batches of the client that was made last in this thread, once");

static PyObject *pop(PyObject *module, PyObject *nothing)
{
    allocfunc allocate;
    PyObject *batches;

    (void)module, (void)nothing;
    if (made == NULL)
        Py_RETURN_NONE;
    allocate = (allocfunc)PyType_GetSlot(batches_type, Py_tp_alloc);
    if ((batches = allocate(batches_type, 0)) != NULL)
        ((Batches *)batches)->client = made;
    made = NULL;
    return batches;
}

/* A partition as the destination of records: met once or, where two share a slot, several times. */
typedef struct {
    PyObject *topic; /* borrowed */
    long partition;
    Py_ssize_t count, first, last;
} Place;

static Py_ssize_t find_places(PyObject *records, Place *places)
{
    Py_ssize_t slots[PLACES] = {0}, found = 0; /* one more than the place */

    for (Py_ssize_t i = 0; i < PyList_Size(records); i++) {
        PyObject *record = PyList_GetItem(records, i), *topic;
        Py_ssize_t *slot;
        long partition;

        if (!has_layout(record, RECORD_SIZE, "record"))
            return -1;
        topic = PyTuple_GetItem(record, RECORD_TOPIC);
        partition = PyLong_AsLong(PyTuple_GetItem(record, RECORD_PARTITION));
        if (partition == -1 && PyErr_Occurred())
            return -1;
        slot = &slots[(slot_of(topic, PLACES) + (size_t)partition) % PLACES];
        if (*slot == 0 || places[*slot - 1].topic != topic ||
            places[*slot - 1].partition != partition) {
            places[found++] = (Place){topic, partition, 0, i, i};
            *slot = found;
        }
        places[*slot - 1].count++;
        places[*slot - 1].last = i;
    }
    return found;
}

/* Add a place to those with their numbers; steals nothing. */
static int add_place(PyObject *places, const Place *place)
{
    PyObject *name = Py_BuildValue("(Ol)", place->topic, place->partition), *before, *numbers;
    Py_ssize_t count = 0, first = place->first, last = 0;
    int failed = 1;

    if (name == NULL)
        return -1;
    before = PyDict_GetItemWithError(places, name);
    if (!PyErr_Occurred() &&
        (before == NULL || PyArg_ParseTuple(before, "nnn", &count, &first, &last))) {
        numbers = Py_BuildValue("(nnn)", count + place->count, first,
                                last > place->last ? last : place->last);
        failed = numbers == NULL || PyDict_SetItem(places, name, numbers) < 0;
        Py_XDECREF(numbers);
    }
    Py_DECREF(name);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(places_doc, "places(records) -> {(topic, partition): (how many, first, last)}");

static PyObject *places_of(PyObject *module, PyObject *records)
{
    PyObject *places;
    Place *found;
    Py_ssize_t count;

    (void)module;
    if (!PyList_Check(records)) {
        PyErr_SetString(PyExc_TypeError, "records are a list");
        return NULL;
    }
    found = PyMem_Malloc((size_t)(PyList_Size(records) + 1) * sizeof *found);
    if (found == NULL)
        return PyErr_NoMemory();
    count = find_places(records, found);
    places = count < 0 ? NULL : PyDict_New();
    for (Py_ssize_t i = 0; places != NULL && i < count; i++)
        if (add_place(places, &found[i]) < 0)
            Py_CLEAR(places);
    PyMem_Free(found);
    return places;
}

static PyMethodDef functions[] = {
    {"load", load, METH_O, load_doc},
    {"places", places_of, METH_O, places_doc},
    {"pop", pop, METH_NOARGS, pop_doc},
    {NULL, NULL, 0, NULL},
};

static const char module_doc[] =
    "Hands many records to librdkafka in one call, without the interpreter's lock.\n\n"
    "Why: a record costs 1.25 microseconds by a call from Python, and half of that so.\n"
    "Assumes: the librdkafka that confluent-kafka has loaded, and a Producer that lives on.\n"
    "Equals: confluent_kafka.Producer.produce, and gateway.sink.delivery.offsets for the places.";

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_producing",
    .m_doc = module_doc,
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__producing(void)
{
    PyObject *module = PyModule_Create(&module_definition);

    batches_type = module == NULL ? NULL : (PyTypeObject *)PyType_FromSpec(&batches_spec);
    if (batches_type == NULL || PyModule_AddStringConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
