package resolver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/noetl/ehdb-gateway/gateway/auth"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Options make a Service.
type Options struct {
	Bus      bus.Bus
	Accounts *auth.Accounts
	Dir      *Dir // nil: claims are only kept as long as the accounts are used
	Operator *jwt.OperatorClaims
	Identity func() server.ServerInfo // what answers say of the server
	Logger   *slog.Logger
}

// Service answers the requests about claims in the system account.
type Service struct {
	o       Options
	session bus.Session
	out     bus.Session // what answers are published by
	done    sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond
	queue   []request
	stall   chan struct{}
	stopped bool
}

// request is a message to the service.
type request struct {
	subject, reply string
	data           []byte
}

// maxQueue is how many requests wait before those who ask are slowed down.
const maxQueue = 64

// What the service listens to: in any case, with a directory, and with one that has all accounts.
var (
	updates  = []string{"$SYS.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE"}
	kept     = []string{"$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.DELETE"}
	complete = []string{"$SYS.REQ.CLAIMS.PACK", "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"}
)

func (o *Options) subjects() []string {
	switch {
	case o.Dir == nil:
		return updates
	case o.Dir.config.Kind == Cache:
		return slices.Concat(updates, kept)
	default:
		return slices.Concat(updates, kept, complete)
	}
}

// Start serves until Stop.
func Start(o Options) (*Service, error) {
	s := &Service{o: o}
	s.work.L = &s.mu
	id := bus.Identity{Account: o.Accounts.System()}
	var err error
	if s.out, err = o.Bus.Open(bus.KindService, id, nil); err != nil {
		return nil, err
	}
	if s.session, err = o.Bus.Open(bus.KindService, id, s); err != nil {
		return nil, err
	}
	for _, subject := range o.subjects() {
		if _, err := s.session.Subscribe(subject, subject, ""); err != nil {
			return nil, err
		}
	}
	s.done.Go(s.run)
	return s, nil
}

// Stop ends the service.
func (s *Service) Stop() {
	s.session.Close()
	s.mu.Lock()
	s.stopped = true
	s.work.Signal()
	s.release()
	s.mu.Unlock()
	s.done.Wait()
	s.out.Close()
}

// Deliver implements bus.Sink.
func (s *Service) Deliver(batch []bus.Delivery) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		m := &batch[i].Msg
		s.queue = append(s.queue, request{string(m.Subject), string(m.Reply), bytes.Clone(m.Data)})
	}
	s.work.Signal()
	if len(s.queue) < maxQueue || s.stopped {
		return nil
	}
	if s.stall == nil {
		s.stall = make(chan struct{})
	}
	return s.stall
}

// release ends the pause of those who ask. s.mu is held.
func (s *Service) release() {
	if s.stall != nil {
		close(s.stall)
		s.stall = nil
	}
}

func (s *Service) run() {
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.stopped {
			s.work.Wait()
		}
		if s.stopped {
			s.mu.Unlock()
			return
		}
		todo := s.queue
		s.queue = nil
		s.release()
		s.mu.Unlock()
		for i := range todo {
			s.handle(&todo[i])
		}
	}
}

func (s *Service) handle(r *request) {
	switch {
	case strings.HasSuffix(r.subject, ".UPDATE"):
		s.update(r)
	case strings.HasSuffix(r.subject, ".LIST"):
		s.list(r)
	case strings.HasSuffix(r.subject, ".DELETE"):
		s.remove(r)
	case strings.HasSuffix(r.subject, ".PACK"):
		s.pack(r)
	case strings.HasSuffix(r.subject, ".LOOKUP"):
		s.lookup(r)
	}
}

// named returns the account in the subject of a request, empty if there is none.
func named(subject string) string {
	tokens := strings.Split(strings.TrimPrefix(subject, "$SYS.REQ."), ".")
	if tokens[0] == "$SYS" {
		tokens = tokens[1:]
	}
	if tokens[0] != "ACCOUNT" {
		return ""
	}
	return tokens[1]
}

// update puts new claims in force.
func (s *Service) update(r *request) {
	name, what := named(r.subject), "jwt update"
	if s.o.Dir != nil && s.o.Dir.config.Kind == Cache {
		what = "jwt update cache"
	}
	claims, err := jwt.DecodeAccountClaims(string(r.data))
	switch {
	case err != nil:
		if name == "" || (s.o.Dir != nil && s.o.Dir.config.Kind == Full) {
			name = "n/a"
		}
		s.answer(r, name, what+" resulted in error", err)
		return
	case name != "" && claims.Subject != name:
		s.answer(r, name, what+" resulted in error", errors.New("subject does not match jwt content"))
		return
	case s.unsignedByKey(claims):
		s.answer(r, claims.Subject, what+" resulted in error",
			errors.New("operator requires issuer to be a signing key"))
		return
	}
	name = claims.Subject
	if (s.o.Dir == nil || s.o.Dir.config.Kind == Cache) && s.o.Accounts.Loaded(name) == nil {
		s.answer(r, name, what+" skipped", nil)
		return
	}
	if err := valid(claims); err != nil {
		s.answer(r, name, "jwt validation failed", err)
		return
	}
	// Claims that nobody trusts would take the place of those that are in force.
	if err := s.o.Accounts.Verify(string(r.data)); err != nil {
		s.answer(r, name, what+" resulted in error", err)
		return
	}
	if s.o.Dir == nil {
		_, err = s.o.Accounts.Update(name, string(r.data))
	} else {
		err = s.o.Dir.SaveAcc(name, string(r.data))
	}
	if err != nil {
		s.answer(r, name, what+" resulted in error", err)
		return
	}
	s.answer(r, name, "jwt updated"+strings.TrimPrefix(what, "jwt update"), nil)
}

// unsignedByKey reports whether an operator that only lets its signing keys sign has signed itself.
func (s *Service) unsignedByKey(c *jwt.AccountClaims) bool {
	op := s.o.Operator
	return op != nil && op.StrictSigningKeyUsage && c.Issuer == op.Subject
}

// valid checks whether claims hold together. That they have expired is no fault here.
func valid(c *jwt.AccountClaims) error {
	vr := jwt.CreateValidationResults()
	c.Validate(vr)
	if vr.IsBlocking(false) {
		return fmt.Errorf("validation errors: %v", vr.Errors())
	}
	for from, to := range c.Mappings {
		for _, m := range to {
			if err := server.ValidateMapping(string(from), string(m.Subject)); err != nil {
				return fmt.Errorf("mapping %q -> %q: %w", from, m.Subject, err)
			}
		}
	}
	return nil
}

// list answers with the accounts that there are claims of.
func (s *Service) list(r *request) {
	accounts := []string{}
	err := s.o.Dir.PackWalk(1, func(line string) {
		if name, _, ok := strings.Cut(line, "|"); ok {
			accounts = append(accounts, name)
		}
	})
	if err != nil {
		s.answer(r, "", "list accounts request failed", err)
		return
	}
	s.reply(r, map[string]any{"server": s.o.Identity(), "data": accounts})
}

// pack answers with all claims, a message each, and an empty one at the end; with that alone if who asks has the same.
func (s *Service) pack(r *request) {
	hash := s.o.Dir.Hash()
	if !bytes.Equal(r.data, hash[:]) {
		err := s.o.Dir.PackWalk(1, func(line string) { s.publish(r.reply, []byte(line)) })
		if err != nil {
			s.o.Logger.Error("Resolver - pack request failed: {error}", slog.Any("error", err))
			return // no end: who asks must not take half of it for all
		}
	}
	s.publish(r.reply, nil)
}

// lookup answers with the claims of one account, nothing if there are none.
func (s *Service) lookup(r *request) {
	token, err := s.o.Dir.Fetch(named(r.subject))
	if err != nil {
		token = ""
	}
	s.publish(r.reply, []byte(token))
}

// remove deletes accounts. The request is signed by the operator.
func (s *Service) remove(r *request) {
	subject, accounts, err := s.deletion(r.data)
	if err != nil {
		s.answer(r, "", fmt.Sprintf("delete accounts request by %s failed", subject), err)
		return
	}
	var failed []string
	for _, name := range accounts {
		if err := s.o.Dir.remove(name); err != nil {
			failed = append(failed, err.Error())
			continue
		}
		s.o.Accounts.Delete(name)
	}
	text := fmt.Sprintf("deleted %d accounts", len(accounts)-len(failed))
	if len(failed) == 0 {
		s.answer(r, "", text, nil)
		return
	}
	s.answer(r, "", fmt.Sprintf("%s, failed for %d", text, len(failed)), errors.New(strings.Join(failed, "\n")))
}

// deletion returns who wants which accounts deleted.
func (s *Service) deletion(token []byte) (subject string, accounts []string, err error) {
	claims, err := jwt.DecodeGeneric(string(token))
	if err != nil {
		return "", nil, err
	}
	subject = claims.Subject
	malformed := errors.New("malformed request")
	list, ok := claims.Data["accounts"].([]any)
	switch {
	case !s.o.Dir.mayDelete():
		return subject, nil, errNoDelete
	case subject != claims.Issuer:
		return subject, nil, errors.New("not self signed")
	case !s.o.Accounts.Trusts(claims.Issuer):
		return subject, nil, errors.New("not trusted")
	case !ok:
		return subject, nil, malformed
	}
	for _, entry := range list {
		name, ok := entry.(string)
		switch {
		case !ok || !nkeys.IsValidPublicAccountKey(name):
			return subject, nil, malformed
		case name == s.o.Accounts.System():
			return subject, nil, errors.New("not allowed to delete system account")
		}
		accounts = append(accounts, name)
	}
	return subject, accounts, nil
}

// answer tells who asked, and the log, how it went.
func (s *Service) answer(r *request, account, text string, err error) {
	id := s.o.Identity()
	doc := server.ServerAPIClaimUpdateResponse{Server: &id}
	if err == nil {
		s.o.Logger.Debug("Resolver - {text} {account}", slog.String("text", text), slog.String("account", account))
		doc.Data = &server.ClaimUpdateStatus{Account: account, Code: http.StatusOK, Message: text}
	} else {
		s.o.Logger.Error("Resolver - {text} {account} - {error}",
			slog.String("text", text), slog.String("account", account), slog.Any("error", err))
		doc.Error = &server.ClaimUpdateError{
			Account: account, Code: http.StatusInternalServerError, Description: fmt.Sprintf("%s - %v", text, err),
		}
	}
	s.reply(r, doc)
}

func (s *Service) reply(r *request, doc any) {
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil { // strings and numbers always marshal
		panic("resolver: marshal an answer: " + err.Error())
	}
	s.publish(r.reply, b)
}

func (s *Service) publish(subject string, data []byte) {
	if subject == "" {
		return
	}
	s.out.Publish(&bus.Msg{Subject: []byte(subject), Data: data})
	s.out.Flush()
}
