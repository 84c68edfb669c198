package auth

import (
	"crypto/subtle"
	"regexp"

	"golang.org/x/crypto/bcrypt"
)

var bcryptPattern = regexp.MustCompile(`^\$2[abxy]\$\d{2}\$.*`)

// samePassword compares what is configured, plain or as a bcrypt hash, with what was offered.
func samePassword(configured, offered string) bool {
	if bcryptPattern.MatchString(configured) {
		return bcrypt.CompareHashAndPassword([]byte(configured), []byte(offered)) == nil
	}
	return subtle.ConstantTimeCompare([]byte(configured), []byte(offered)) == 1
}
