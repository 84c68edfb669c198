package jetstreamapi

import (
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

// errAccountPath is what an account's name that could be a path is refused with.
var errAccountPath = errors.New("account name can not contain path separators")

// serveAccountPurge answers ACCOUNT.PURGE.<account> in the system account: it deletes all streams of the account. An
// account that is not there has none. To all others nobody serves the subject.
func serveAccountPurge(r *request, out *publisher) {
	if !r.ofSystem() {
		serveUnknown(r, out)
		return
	}
	var resp server.JSApiAccountPurgeResponse
	r.begin(&resp, &resp.ApiResponse, server.JSApiAccountPurgeResponseType)
	name := r.token(2)
	if strings.ContainsAny(name, `\/`) {
		r.fail(out, server.NewJSStreamGeneralError(errAccountPath))
		return
	}
	answer := func(err error) {
		r.later(func(out *publisher) {
			if err != nil {
				r.fail(out, server.NewJSStreamDeleteError(err))
				return
			}
			resp.Initiated = true
			r.done(out)
		})
	}
	a := r.svc.account(name)
	if a == nil {
		answer(nil)
		return
	}
	r.logger().Warn("all streams of an account are deleted, as the system account asks", slog.String("of", name))
	a.deleteStreams(answer)
}

// ofSystem reports whether a client of the system account asks, and not by an import.
func (r *request) ofSystem() bool {
	system := r.svc.opts.System
	return system != "" && r.acc.name == system && r.from.Account == system
}

// deleteStreams deletes every stream; done is called once that is durable, with what went wrong.
func (a *account) deleteStreams(done func(error)) {
	a.change.Lock()
	defer a.change.Unlock()
	streams := a.sortedStreams("")
	var mu sync.Mutex
	var errs []error
	left := len(streams) + 1
	finished := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
		if left--; left == 0 {
			done(errors.Join(errs...))
		}
	}
	for _, e := range streams {
		if err := a.deleteStream(e, finished); err != nil {
			finished(err)
		}
	}
	finished(nil)
}

// serveNotEnabled answers what a client of the system account asks but for INFO: it has no JetStream of its own.
func serveNotEnabled(r *request, out *publisher) {
	var resp jsapi.Response
	r.begin(&resp, &resp, server.JSApiSystemResponseType)
	r.fail(out, server.NewJSNotEnabledForAccountError())
}
