package console

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// root leads from a page to where the console's own path begins, as a relative link.
func root(r *http.Request) string {
	if strings.HasSuffix(r.URL.Path, Path) {
		return ""
	}
	return "../"
}

// send renders a page as a whole before any of it is sent.
func send(w http.ResponseWriter, status int, name string, v any) {
	b, err := render(name, v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // who asked has gone
}

func render(name string, v any) ([]byte, error) {
	var b bytes.Buffer
	err := pages.ExecuteTemplate(&b, name, v)
	return b.Bytes(), err
}

// problem is a page that says why there is no other.
func problem(w http.ResponseWriter, r *http.Request, status int, why string) {
	send(w, status, "none.html", struct{ Root, Why string }{root(r), why})
}

func (c *Console) view(r *http.Request) (*view, error) {
	l, err := c.look(r.Context())
	if err != nil {
		return nil, err
	}
	return newView(&l, c.o.Now(), root(r), r.URL.Query().Get("scope")), nil
}

// overview is the console's first page.
func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	v, err := c.view(r)
	if err != nil {
		return // who asked has gone
	}
	status := http.StatusOK
	if v.Status == nil {
		status = http.StatusServiceUnavailable
	}
	send(w, status, "overview.html", v)
}

// explainView is what is known of one sequence.
type explainView struct {
	Root, Scope string
	Seq         uint64
	Finding     *parity.Finding
	Stream      string
	API         string
	Undo        string
}

// explain shows one sequence as all witnesses tell of it. What messages say is only given by the API, to who has the
// token.
func (c *Console) explain(w http.ResponseWriter, r *http.Request) {
	scope, err := cutover.ParseScope(r.URL.Query().Get("scope"))
	if err != nil {
		problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	seq, err := strconv.ParseUint(r.URL.Query().Get("seq"), 10, 64)
	if err != nil || seq == 0 {
		problem(w, r, http.StatusBadRequest, "seq has to be the sequence of a message")
		return
	}
	e := c.o.Engine.Parity()
	if e == nil {
		problem(w, r, http.StatusNotFound, "nothing is compared in this bus mode")
		return
	}
	f, err := e.Explain(r.Context(), scope, seq)
	switch {
	case errors.Is(err, parity.ErrUnknown), errors.Is(err, cutover.ErrNoRecord), errors.Is(err, cutover.ErrNoStream):
		problem(w, r, http.StatusNotFound, err.Error())
	case err != nil:
		problem(w, r, http.StatusBadGateway, err.Error())
	default:
		v := explainView{Root: root(r), Scope: scope.String(), Stream: scope.Stream, Seq: seq, Finding: f}
		v.API = v.Root + strings.TrimPrefix(face.Base, "/") + "/diff/explain"
		send(w, http.StatusOK, "explain.html", v)
	}
}
