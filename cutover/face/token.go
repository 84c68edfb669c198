package face

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// TokenFile is the name of the operator's token in the data directory.
const TokenFile = "operator.token"

// Token returns the operator's token of a data directory, and makes one if there is none. Whoever can read the file may
// change everything: it is readable by its owner alone, or refused.
func Token(dir string) (string, error) {
	name := filepath.Join(dir, TokenFile)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the data directory
	switch {
	case errors.Is(err, os.ErrExist):
		return readToken(name, remade)
	case err != nil:
		return "", err
	}
	b := make([]byte, 32)
	if _, err = rand.Read(b); err == nil {
		_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(b) + "\n")
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(name))
	}
	return readToken(name, remade)
}

// ApproverFile is the name of the approvers' token in the data directory. It is made by whoever wants approvals to be
// more than a name.
const ApproverFile = "approver.token"

// ApproverToken returns the approvers' token of a data directory; empty: there is none. Whoever operates must not have
// it.
func ApproverToken(dir, operator string) (string, error) {
	name := filepath.Join(dir, ApproverFile)
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	token, err := readToken(name, byHand)
	if err == nil && token == operator {
		err = fmt.Errorf("%s is the operator's token: whoever asks could approve it too", name)
	}
	return token, err
}

// minToken is how many characters a token has at least.
const minToken = 32

// What else helps when a token cannot be used.
const (
	remade = "or remove it: the gateway makes a new one"
	byHand = "or remove it: then approvals are names. The gateway makes none: you do, as in openssl rand -hex 32"
)

// readToken reads a token that only its owner can read.
func readToken(name, otherwise string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others than its owner: chmod 600, %s", name, otherwise)
	}
	b, err := os.ReadFile(name) //nolint:gosec // the data directory
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken {
		return "", fmt.Errorf("%s holds %d characters, and a token has at least %d: write one into it, %s", name,
			len(token), minToken, otherwise)
	}
	return token, nil
}

// knows tells whether a request carries the token.
func knows(r *http.Request, token string) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}
