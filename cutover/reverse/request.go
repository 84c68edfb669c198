package reverse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Codes of the servers' errors.
const (
	codeNoConsumer = 10014
	codeNoSequence = 10043 // a message to delete is not there
	codeNoMessage  = 10057 // likewise
	codeNotFound   = 10037 // a message to get is not there
)

// request sends a request to the servers' JetStream that must not fail.
func request(ctx context.Context, conn *nats.Conn, subject, body string) error {
	var answer struct{}
	return ask(ctx, conn, subject, []byte(body), &answer)
}

// ask is request with what is answered.
func ask(ctx context.Context, conn *nats.Conn, subject string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, "$JS.API."+subject, body)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	var failed struct {
		Error *server.ApiError `json:"error"`
	}
	if err := errors.Join(json.Unmarshal(m.Data, &failed), json.Unmarshal(m.Data, answer)); err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if e := failed.Error; e != nil {
		return &apiError{subject, int(e.ErrCode), e.Description}
	}
	return nil
}

// Refused reports whether an error is the servers' answer to a request.
func Refused(err error) bool {
	var api *apiError
	return errors.As(err, &api)
}

type apiError struct {
	subject string
	code    int
	text    string
}

func (e *apiError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.subject, e.text, e.code) }
