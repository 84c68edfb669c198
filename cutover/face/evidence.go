package face

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/noetl/ehdb-gateway/cutover/parity"
)

// evidence answers with everything that a decision rests on, as a tar.gz of JSON files. It shows messages, so it needs
// the token.
func (a *api) evidence(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		writeJSON(w, http.StatusMethodNotAllowed, problem{"only GET is served here", "bad_request"})
		return
	}
	if !a.trusted(w, r) {
		return
	}
	st, err := a.status(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	files := []bundled{{"status.json", st}}
	add := func(name string, v any, err error) {
		if err != nil { // what is missing is missing by name
			v = problem{err.Error(), "failed"}
		}
		files = append(files, bundled{name, v})
	}
	inv, err := a.Engine.Inventory(r.Context())
	add("inventory.json", inv, err)
	events, err := a.Engine.Events(r.Context(), 0, maxEvents, false)
	add("events.json", EventList{events}, err)
	if e := a.Engine.Parity(); e != nil {
		add("self-test.json", e.Inspect(r.Context()), nil)
		list, dropped := e.Findings(parity.Query{Healed: true, Limit: maxRepair})
		add("findings.json", FindingList{Findings: list, Dropped: dropped}, nil)
		add("known.json", e.Known(), nil)
		for _, scope := range e.Scopes() {
			runs, err := e.Runs(scope)
			add("diff/"+scope.Account+"/"+scope.Stream+".json", runs, err)
		}
	}
	name := "cutover-evidence-" + a.Now().UTC().Format("20060102T150405Z") + ".tgz"
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if err := a.bundle(w, files); err != nil {
		a.Logger.Warn("The evidence was not written in full", slog.Any("error", err))
	}
}

// bundled is a file of the evidence.
type bundled struct {
	name string
	v    any
}

func (a *api) bundle(w http.ResponseWriter, files []bundled) error {
	gz := gzip.NewWriter(w)
	t := tar.NewWriter(gz)
	for _, f := range files {
		b, err := json.MarshalIndent(f.v, "", "  ")
		if err != nil {
			return err
		}
		h := &tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(b)), ModTime: a.Now()}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(b); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), gz.Close())
}
