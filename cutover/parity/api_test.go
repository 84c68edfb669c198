package parity

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestCompareAPI(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b    string
		differ  string // path; "-": equal
		ignored int
	}{
		"equal":          {`{"type":"x","n":1}`, `{"n":2,"type":"x"}`, "-", 0},
		"a value":        {`{"type":"x"}`, `{"type":"y"}`, "type", 0},
		"a code":         {`{"error":{"code":404,"err_code":10059,"description":"a"}}`, `{"error":{"code":404,"err_code":10014,"description":"b"}}`, "error.err_code", 0},
		"an error":       {`{"ok":true}`, `{"ok":true,"error":{"code":1}}`, "error", 0},
		"a type":         {`{"state":{"messages":1}}`, `{"state":{"messages":"1"}}`, "state.messages", 0},
		"a field":        {`{"state":{"messages":1}}`, `{"state":{}}`, "state.messages", 0},
		"in a list":      {`{"streams":[{"a":1}]}`, `{"streams":[{"b":1}]}`, "streams.0.a", 0},
		"an empty list":  {`{"streams":[1]}`, `{"streams":[]}`, "streams", 0},
		"a shorter list": {`{"streams":[1,2]}`, `{"streams":[1]}`, "-", 0},
		"what is ignored": {
			`{"cluster":{"leader":"a"},"config":{"metadata":{"_nats.ver":"1"}},"ts":"x"}`, `{"config":{"metadata":{}}}`, "-", 3,
		},
		"no JSON": {`+OK`, `-ERR`, "", 0},
	} {
		v := CompareAPI("$JS.API.STREAM.INFO.S", []byte(tc.a), []byte(tc.b))
		if v.Equal != (tc.differ == "-") || !v.Equal && v.Differences[0].Path != tc.differ || v.Ignored != tc.ignored {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// The answers of two real servers to the same requests are alike, and one that is not is counted by what was asked.
func TestAPIBetweenServers(t *testing.T) {
	_, a := natsServer(t, jetstream.StreamConfig{})
	_, b := natsServer(t, jetstream.StreamConfig{})
	var api API
	for _, subject := range []string{"$JS.API.STREAM.INFO.S", "$JS.API.STREAM.INFO.none", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.INFO.S.c"} {
		ma, errA := a.RequestWithContext(t.Context(), subject, nil)
		mb, errB := b.RequestWithContext(t.Context(), subject, nil)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if v := api.Compare(subject, ma.Data, mb.Data); !v.Equal {
			t.Errorf("%+v", v)
		}
	}
	api.Compare("$JS.API.STREAM.INFO.S", []byte(`{"a":1}`), []byte(`{}`))
	st := api.Stats()
	if st.Equal != 4 || st.Differ != 1 || len(st.Latest) != 1 || st.Version == "" || st.ByVerb["STREAM.INFO"][1] != 1 {
		b, _ := json.Marshal(st)
		t.Fatal(string(b))
	}
}
