// Package auth decides who a client is and what it may do.
//
// An [Authenticator] turns [Credentials] into a [Login]: account, user and [Permissions]. [NewConfigured] builds the
// one for users and tokens written in the configuration. Other kinds (JWT, a login passed to another server) implement
// the same interface.
package auth
