package gateway

import "testing"

// TestWhoAnswers: only what comes to the inbox that was asked from is an answer, once, and not if the server names another
// account.
func TestWhoAnswers(t *testing.T) {
	asked := func() *identity {
		w := &identity{known: make(chan struct{}), opens: func() {}}
		w.ask()
		return w
	}
	evil, good := []byte(`{"data":{"account":"EVIL"}}`), []byte(`{"data":{"account":"GOOD","expires":1000}}`)
	w := asked()
	w.answer([]byte("_INBOX.own"), evil)
	if w.settled || w.id.Account != "" {
		t.Fatalf("a message of the client to itself counts: %+v", w.id)
	}
	w.answer([]byte(w.asked), good)
	w.answer([]byte(w.asked), evil)
	if !w.settled || w.id.Account != "GOOD" || !w.id.Permitted || w.expires != 1000 || !w.named("GOOD") {
		t.Fatalf("%+v", w.id)
	}
	if w.named("OTHER") {
		t.Error("the server names another account, and that is not noticed")
	}
	w = asked()
	w.named("GOOD")
	w.answer([]byte(w.asked), evil)
	if w.id.Account != "GOOD" || w.id.Permitted {
		t.Errorf("an answer about another account counts: %+v", w.id)
	}
	if a, b := asked(), asked(); a.asked == b.asked {
		t.Error("inboxes can be told")
	}
}
