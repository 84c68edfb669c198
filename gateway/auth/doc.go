// Package auth decides who a client is and what it may do.
//
// An [Authenticator] turns [Credentials] into a [Login]: account, user, [Permissions] and [Limits]. There is one for
// each way to say who may come: [Configured] for users, nkeys and tokens written in the configuration,
// [ConfiguredCallout] for those and an authorization service, and [Operator] for users who come with a JWT, signed by
// one of the [Accounts] that a trusted operator has signed. Signatures, JWTs and encryption are checked by the
// libraries of NATS.
package auth
