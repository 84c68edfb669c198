package face

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/noetl/ehdb-gateway/cutover/drill"
)

// DrillList are the exercises, oldest first.
type DrillList struct {
	Drills []Drill `json:"drills"`
}

// drills answers with all exercises, or the one with an id.
func (a *api) drills(r *http.Request) (any, error) {
	id, err := number(r, "id")
	if err != nil {
		return nil, err
	}
	list := a.Engine.Drills()
	if id == 0 {
		return DrillList{list}, nil
	}
	for i := range list {
		if list[i].ID == id {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("%w: there is no drill %d", ErrUnknown, id)
}

func (a *api) drill(r *http.Request) (any, error) {
	var q DrillRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := acted(q.Actor, q.Scope); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(drill.Kinds, q.Kind):
		return nil, bad("kind: give one of %s", strings.Join(drill.Kinds, ", "))
	case q.Load < 0 || q.Load > drill.MaxLoad:
		return nil, bad("load: give up to %d messages a second", drill.MaxLoad)
	}
	return a.Engine.Drill(r.Context(), q)
}

func (a *api) drillFault(r *http.Request) (any, error) {
	var q DrillFaultRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := named(q.Actor, q.ID); err != nil {
		return nil, err
	}
	if q.Seconds < 0 || q.Seconds > drill.MaxCut.Seconds() {
		return nil, bad("seconds: give up to %.0f: beyond that another gateway may take the lease",
			drill.MaxCut.Seconds())
	}
	return a.Engine.DrillFault(r.Context(), q)
}

func (a *api) drillReport(r *http.Request) (any, error) {
	var q DrillReportRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := named(q.Actor, q.ID); err != nil {
		return nil, err
	}
	return a.Engine.DrillReport(r.Context(), q)
}

// named wants to know which exercise, and who asks.
func named(a Actor, id uint64) error {
	switch {
	case id == 0:
		return bad("id is missing")
	case a.By == "":
		return bad(`"by" is missing: changes are kept with who asked for them`)
	}
	return nil
}
