package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// action is a verb of the API as the console offers it.
type action struct {
	Verb   string
	Title  string
	Path   string         // below face.Base; "": it is done with ehdbctl
	Body   map[string]any // fields besides scope, by and reason
	To     string         // where the planned move goes; "": there is no plan of it
	Says   string         // what it does, if there is no plan
	Undo   string         // ehdbctl's arguments that take it back
	Danger bool           // it cannot be undone
	Ask    []asked        // fields that have to be filled in
	Abort  bool           // gates may be named that end it by themselves
	May    []asked        // fields that may be filled in
}

// asked is a field of the API that has to be filled in.
type asked struct{ Field, Title string }

var consumerAsked = []asked{{"consumer", "consumer"}}

// actions are the verbs that a stream may offer.
var actions = []action{
	{Verb: "flip", Title: "Flip to EHDB", Path: "/flip", To: "ehdb"},
	{Verb: "flip go", Title: "Go on with the flip", Path: "/flip/go", To: "ehdb"},
	{
		Verb: "flip abort", Title: "Abort the flip", Path: "/flip/abort", Undo: "flip",
		Says: "The flip that is postponed ends without effect: the servers keep the say.",
	},
	{
		Verb: "flip accept", Title: "Accept the flip", Path: "/flip/accept", Undo: "rollback",
		Says: "The observation behind the flip ends: the stream stays here, and is not rolled back by itself any more.",
	},
	{Verb: "rollback", Title: "Roll back to NATS", Path: "/rollback", To: "nats"},
	{
		Verb: emergency, Title: "Roll back with a loss", Path: "/rollback", To: "nats", Danger: true, Undo: "flip",
	},
	{
		Verb: "complete", Title: "Complete", Path: "/complete", Body: map[string]any{"understood": true}, Danger: true,
		Says: "The way back is given up: the servers are not kept equal any more, and no rollback is possible.",
		Ask: []asked{
			{"approved_by", "A second person who approves"},
			{"credentials", "The servers' credentials that are to be retired"},
		},
	},
	{
		Verb: "shadow start", Title: "Start the copy", Path: "/shadow", Body: map[string]any{"action": "start"},
		Undo: "shadow stop",
		Says: "A copy of the stream is kept here and compared. The servers keep the say; clients notice nothing.",
	},
	{
		Verb: "shadow stop", Title: "Stop the copy", Path: "/shadow", Body: map[string]any{"action": "stop"},
		Undo: "shadow start",
		Says: "The copy is not kept up any more. The servers keep the say; clients notice nothing.",
	},
	{
		Verb: "shadow reset", Title: "Reset the copy", Path: "/shadow", Body: map[string]any{"action": "reset"},
		Danger: true,
		Says:   "The copy is dropped and filled anew, and what was compared counts no more. The servers keep the say.",
	},
	{
		Verb: "canary add", Title: "Serve a consumer from here", Path: "/canary", Undo: "canary rm",
		Ask: consumerAsked, Abort: true,
		Says: "One consumer is served from the copy; the servers keep the say about what is stored.",
	},
	{
		Verb: "canary rm", Title: "Give a consumer back", Path: "/canary", Undo: "canary add",
		Ask:  consumerAsked,
		Body: map[string]any{"remove": true}, Says: "The consumer is served by the servers again.",
	},
}

// speed are the verbs about how fast a copy follows.
var speed = []action{
	{
		Verb: "pause", Title: "Pause copying", Path: "/pause", Undo: "resume",
		Says: "The stream is not copied until somebody resumes it. The servers keep the say; clients notice nothing. " +
			"A flip is refused meanwhile.",
	},
	{
		Verb: "resume", Title: "Resume copying", Path: "/resume", Undo: "pause",
		Says: "The stream is copied on, with what was published since it was paused.",
	},
	{
		Verb: "throttle", Title: "Hold the history back", Path: "/throttle", Undo: "throttle off",
		Says: "What is behind waits: the history that is copied, and comparisons of all of it. What is new is copied " +
			"on. With a load it waits by itself while the load is above that.",
		May: []asked{
			{"max_load", "Only above a load, as pubp99=20ms"},
			{"critical_load", "Copying is paused at a load, as pubp99=200ms"},
		},
	},
	{
		Verb: "throttle off", Title: "Let the history go on", Path: "/throttle", Body: map[string]any{"off": true},
		Undo: "throttle", Says: "What is behind is copied on at full speed.",
	},
}

// emergency is a rollback that does not wait for what the servers lack.
const emergency = "rollback --emergency"

func actionOf(verb string) action {
	for _, list := range [][]action{actions, speed} {
		for _, a := range list {
			if a.Verb == verb {
				return a
			}
		}
	}
	return action{Verb: verb, Title: verb}
}

// planView is what the page of an action shows.
type planView struct {
	Root, Scope, Name string
	Action            action
	Phase             face.Phase
	Legal             bool
	Plan              *face.Plan
	Gates             *gate.Report
	Back              face.RollbackCard
	Undo              string
	Command           string // that does the same
	Body              string // JSON, to which who and why are added
	API               string
	Problem           string
	Phrase            string         // to be typed besides the name; "": none
	Force             []*gate.Result // gates in the way that can be done without, with a reason
	Never             []string       // those that cannot
}

// plan shows what an action would do, and takes the decision.
func (c *Console) plan(w http.ResponseWriter, r *http.Request) {
	scope, err := cutover.ParseScope(r.URL.Query().Get("scope"))
	if err != nil {
		problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	l, err := c.look(r.Context())
	if err != nil || l.status == nil {
		problem(w, r, http.StatusServiceUnavailable, "it is not known how the cutover stands")
		return
	}
	var st *face.StreamState
	for i := range l.status.Streams {
		if l.status.Streams[i].Scope == scope {
			st = &l.status.Streams[i]
		}
	}
	if st == nil {
		problem(w, r, http.StatusNotFound, scope.String()+" is not under watch")
		return
	}
	p := &planView{
		Root: root(r), Scope: scope.String(), Name: scope.Stream, Action: actionOf(r.URL.Query().Get("do")),
		Phase: st.Phase, Gates: st.Gates, Back: st.Back,
	}
	if p.Action.Path == "" {
		problem(w, r, http.StatusNotFound, fmt.Sprintf("the console cannot do %q", p.Action.Verb))
		return
	}
	for _, verb := range st.Legal {
		p.Legal = p.Legal || verb == p.Action.Verb || p.Action.Verb == emergency && verb == "rollback"
	}
	c.fill(r, p, scope)
	send(w, http.StatusOK, "plan.html", p)
}

// obstacles are the gates in the way of a flip.
func (p *planView) obstacles() {
	if p.Gates == nil {
		return
	}
	for i := range p.Gates.Gates {
		switch g := &p.Gates.Gates[i]; {
		case g.State == gate.Pass || g.State == gate.NotApplicable || g.Forced != "":
		case g.Forceable:
			p.Force = append(p.Force, g)
		default:
			p.Never = append(p.Never, g.ID)
		}
	}
}

// fill adds the plan, the way back and what is sent.
func (c *Console) fill(r *http.Request, p *planView, scope cutover.Scope) {
	a := &p.Action
	arg := " " + scope.Flag()
	if strings.HasPrefix(a.Verb, "canary") {
		arg = " --scope 'consumer=" + scope.String() + "/NAME'"
	}
	body := map[string]any{"scope": scope.String()}
	maps.Copy(body, a.Body)
	switch {
	case a.Verb == emergency:
		body["emergency"], body["max_loss"] = true, p.Back.Lost
		p.Phrase = fmt.Sprintf("lose %d", p.Back.Lost)
	case a.Danger:
		p.Undo = "cannot be undone"
	case a.Undo != "":
		p.Undo = "ehdbctl " + a.Undo + arg
	}
	if a.To != "" {
		plan, err := c.o.Engine.Plan(r.Context(), face.PlanRequest{Scope: scope, To: a.To})
		if err != nil {
			p.Problem = "there is no plan: " + err.Error()
		} else {
			p.Plan, p.Undo = plan, cmp.Or(plan.Undo, p.Undo)
			if a.Verb == "flip" {
				body["expect"] = plan.Digest
				arg += " --expect " + plan.Digest
				p.obstacles()
			}
		}
	}
	p.Command = "ehdbctl " + a.Verb + arg
	if a.Verb == "pause" || a.Verb == "throttle" {
		p.Command += " --reason WHY"
	}
	b, err := json.Marshal(body)
	if err != nil {
		p.Problem = err.Error()
	}
	p.Body, p.API = string(b), p.Root+strings.TrimPrefix(face.Base, "/")+a.Path
}
