package accounts

// What every account takes of the system account: who I am, and what my account does.

// systemExports is what the system account offers besides what it says itself.
func systemExports() []Export {
	return []Export{
		{Subject: "$SYS.REQ.ACCOUNT.*.CONNZ", Service: true, Response: Streamed, TokenPosition: 4},
		{Subject: "$SYS.REQ.ACCOUNT.*.STATZ", Service: true, Response: Streamed, TokenPosition: 4},
		{Subject: "$SYS.REQ.USER.*.INFO", Service: true},
		{Subject: "$SYS.DEBUG.SUBSCRIBERS", Service: true},
	}
}

// systemImports is what account takes of the system account besides what it says itself.
func systemImports(system, account string) []Import {
	ask := func(local, subject string, share bool) Import {
		return Import{Account: system, Subject: subject, Local: local, Service: true, Share: share}
	}
	user := ask("$SYS.REQ.USER.INFO", "$SYS.REQ.USER."+account+".INFO", true)
	if account == system {
		return []Import{user}
	}
	return []Import{
		user,
		ask("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT."+account+".CONNZ", false),
		ask("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT."+account+".CONNZ", false),
		ask("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT."+account+".STATZ", false),
	}
}

// equip returns a with what every account has. Its own exports and imports of the same subjects stand in their place.
func (r *Registry) equip(a *Account) *Account {
	if r.system == "" {
		return a
	}
	out := *a
	out.Imports = append([]Import(nil), a.Imports...)
	out.Exports = append([]Export(nil), a.Exports...)
	for _, im := range systemImports(r.system, a.Name) {
		if !out.takes(&im) {
			out.Imports = append(out.Imports, im)
		}
	}
	if a.Name == r.system {
		for _, e := range systemExports() {
			if out.export(&Import{Subject: e.Subject, Service: true}) == nil {
				out.Exports = append(out.Exports, e)
			}
		}
	}
	return &out
}

// takes reports whether a imports im already.
func (a *Account) takes(im *Import) bool {
	for i := range a.Imports {
		if has := &a.Imports[i]; has.Service && has.Account == im.Account && has.Local == im.Local {
			return true
		}
	}
	return false
}
