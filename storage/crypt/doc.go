// Package crypt encrypts what a data directory holds. Its picture is in docs/format/encryption.md, the reasons are in
// docs/adr/0004-encryption.md.
//
// The secret that an operator configures encrypts one small file, KEYS, which holds the directory's own keys, made at
// random (see [Ring]). Those keys encrypt everything else: parts through a key of each part's own, and the bodies of
// the write-ahead log's blocks and of the manifest's frames as boxes (see [Keys.Seal]).
package crypt
