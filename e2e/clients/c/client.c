// What the official C client does against a server: requests, an ordered consumer, a durable one with acknowledgements,
// KV with a watch and compare-and-set, and the chunks of an object written, read back and compared (this client has
// no object store of its own). Usage: client URL. It prints one line for each step and ends with "ok".
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #cond, nats_GetLastError(NULL));                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) CHECK((call) == NATS_OK)

static void echo(natsConnection *nc, natsSubscription *sub, natsMsg *m, void *closure) {
    (void)sub, (void)closure;
    natsConnection_Publish(nc, natsMsg_GetReply(m), natsMsg_GetData(m), natsMsg_GetDataLength(m));
    natsMsg_Destroy(m);
}

static void core(natsConnection *nc) {
    natsSubscription *sub = NULL;
    natsMsg *m = NULL;
    OK(natsConnection_QueueSubscribe(&sub, nc, "c.echo", "q", echo, NULL));
    OK(natsConnection_RequestString(&m, nc, "c.echo", "hello", 5000));
    CHECK(natsMsg_GetDataLength(m) == 5 && memcmp(natsMsg_GetData(m), "hello", 5) == 0);
    natsMsg_Destroy(m);
    CHECK(natsConnection_RequestString(&m, nc, "c.nobody", "", 5000) == NATS_NO_RESPONDERS);
    natsSubscription_Destroy(sub);
    puts("core");
}

static void add_stream(jsCtx *js, const char *name, const char *subject) {
    jsStreamConfig cfg;
    const char *subjects[] = {subject};
    jsStreamInfo *si = NULL;
    jsStreamConfig_Init(&cfg);
    cfg.Name = name, cfg.Subjects = subjects, cfg.SubjectsLen = 1;
    OK(js_AddStream(&si, js, &cfg, NULL, NULL));
    jsStreamInfo_Destroy(si);
}

static void streams(jsCtx *js) {
    char subject[32], data[32];
    add_stream(js, "C", "c.s.>");
    for (int i = 0; i < 500; i++) {
        jsPubAck *ack = NULL;
        snprintf(subject, sizeof subject, "c.s.%d", i % 5);
        int n = snprintf(data, sizeof data, "m%d", i);
        OK(js_Publish(&ack, js, subject, data, n, NULL, NULL));
        CHECK(ack->Sequence == (uint64_t)i + 1);
        jsPubAck_Destroy(ack);
    }
    natsSubscription *sub = NULL;
    natsMsg *m = NULL;
    jsSubOptions so;
    jsSubOptions_Init(&so);
    so.Ordered = true;
    OK(js_SubscribeSync(&sub, js, "c.s.3", NULL, &so, NULL));
    for (int i = 0; i < 100; i++) {
        OK(natsSubscription_NextMsg(&m, sub, 5000));
        CHECK(strcmp(natsMsg_GetSubject(m), "c.s.3") == 0);
        natsMsg_Destroy(m);
    }
    natsSubscription_Destroy(sub);
    puts("ordered consumer");

    jsConsumerInfo *ci = NULL;
    natsMsgList list;
    uint64_t acked = 0;
    OK(js_PullSubscribe(&sub, js, "c.s.>", "D", NULL, NULL, NULL));
    OK(natsSubscription_Fetch(&list, sub, 300, 10000, NULL));
    CHECK(list.Count == 300);
    for (int i = 0; i < list.Count; i++) {
        if (i % 100 == 99) {
            OK(natsMsg_NakWithDelay(list.Msgs[i], 60000, NULL));
        } else {
            OK(natsMsg_AckSync(list.Msgs[i], NULL, NULL));
            acked++;
        }
    }
    natsMsgList_Destroy(&list);
    OK(natsSubscription_GetConsumerInfo(&ci, sub, NULL, NULL));
    CHECK(ci->NumPending + (uint64_t)ci->NumAckPending + acked == 500);
    jsConsumerInfo_Destroy(ci);
    natsSubscription_Destroy(sub);
    puts("durable consumer");
}

static void keys(jsCtx *js) {
    kvStore *kv = NULL;
    kvWatcher *watch = NULL;
    kvEntry *e = NULL;
    kvConfig cfg;
    uint64_t rev = 0;
    static const struct {
        const char *key, *value;
        kvOperation op;
    } want[] = {{"a", "1", kvOp_Put}, {"b", "2", kvOp_Put}, {"b", "3", kvOp_Put}, {"a", "", kvOp_Delete}};
    kvConfig_Init(&cfg);
    cfg.Bucket = "c", cfg.History = 5;
    OK(js_CreateKeyValue(&kv, js, &cfg));
    OK(kvStore_WatchAll(&watch, kv, NULL));
    OK(kvWatcher_Next(&e, watch, 5000)); // all that was there before: nothing
    CHECK(e == NULL);
    OK(kvStore_PutString(NULL, kv, "a", "1"));
    OK(kvStore_CreateString(&rev, kv, "b", "2"));
    OK(kvStore_UpdateString(NULL, kv, "b", "3", rev));
    CHECK(kvStore_UpdateString(NULL, kv, "b", "4", rev) != NATS_OK);
    OK(kvStore_Delete(kv, "a"));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        OK(kvWatcher_Next(&e, watch, 5000));
        CHECK(strcmp(kvEntry_Key(e), want[i].key) == 0 && kvEntry_Operation(e) == want[i].op);
        CHECK(strlen(want[i].value) == (size_t)kvEntry_ValueLen(e) &&
              memcmp(kvEntry_Value(e), want[i].value, kvEntry_ValueLen(e)) == 0);
        kvEntry_Destroy(e);
    }
    kvWatcher_Destroy(watch);
    kvStore_Destroy(kv);
    puts("kv");
}

static void chunks(jsCtx *js) {
    enum { chunk = 128 << 10, count = 8 };
    static char data[chunk * count];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)((i * 2654435761u) >> 13);
    add_stream(js, "OBJ_c", "$O.c.>");
    for (int i = 0; i < count; i++)
        OK(js_PublishAsync(js, "$O.c.C.blob", data + i * chunk, chunk, NULL));
    OK(js_PublishAsyncComplete(js, NULL));
    natsSubscription *sub = NULL;
    natsMsg *m = NULL;
    jsSubOptions so;
    jsSubOptions_Init(&so);
    so.Ordered = true;
    OK(js_SubscribeSync(&sub, js, "$O.c.C.blob", NULL, &so, NULL));
    for (int i = 0; i < count; i++) {
        OK(natsSubscription_NextMsg(&m, sub, 5000));
        CHECK(natsMsg_GetDataLength(m) == chunk && memcmp(natsMsg_GetData(m), data + i * chunk, chunk) == 0);
        natsMsg_Destroy(m);
    }
    natsSubscription_Destroy(sub);
    puts("chunks");
}

int main(int argc, char **argv) {
    natsConnection *nc = NULL;
    jsCtx *js = NULL;
    CHECK(argc == 2);
    OK(natsConnection_ConnectTo(&nc, argv[1]));
    OK(natsConnection_JetStream(&js, nc, NULL));
    core(nc);
    streams(js);
    keys(js);
    chunks(js);
    jsCtx_Destroy(js);
    natsConnection_Destroy(nc);
    nats_Close();
    puts("ok");
    return 0;
}
