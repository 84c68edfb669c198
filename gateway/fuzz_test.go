package gateway

import (
	"encoding/json"
	"testing"
)

// FuzzWithoutSecrets: whatever document a client sends with CONNECT, the log shows nothing that logs in.
func FuzzWithoutSecrets(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"pass":"hush-hush","user":"u"}`, `{"PASS":"hush-hush"}`, `{"pa\u0073s":"hush-hush"}`, `{"jwt":{"a":"hush-hush"}}`,
		`{"auth_token":"hush-hush","auth_token":1}`, `[]`, `null`, `{"sig":"hush-hush`, `{"ſig":"hush-hush"}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		shown := withoutSecrets(doc)
		var told struct { // decoded as the options are
			Pass, Sig, Nkey, JWT string
			Token                string `json:"auth_token"`
			Proxy                string `json:"proxy_sig"`
		}
		if json.Unmarshal([]byte(shown), &told) != nil {
			return // not valid
		}
		for _, s := range []string{told.Pass, told.Sig, told.Nkey, told.JWT, told.Token, told.Proxy} {
			if s != "" && s != "[REDACTED]" {
				t.Errorf("%q is shown as %q", doc, shown)
			}
		}
	})
}
