package config

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:generate go run ../../scripts/configdoc ../../docs/config.md

//go:embed keys.txt
var keysText string

// Key is one key of a configuration file, for the reference.
type Key struct {
	Names                     []string // the usual one first
	Default, Meaning, Example string   // Markdown
}

// KeyBlock is a block of keys: of ours, its path; of nats-server's, what it is called in the reference.
type KeyBlock struct {
	Name string
	Keys []Key
}

// own reports whether the block is ours.
func (b *KeyBlock) own() bool {
	top, _, _ := strings.Cut(b.Name, ".")
	return top == "ehdb" || top == "bus"
}

// Reference returns all keys by block, as keys.txt describes them.
func Reference() ([]KeyBlock, error) {
	var out []KeyBlock
	for line := range strings.Lines(keysText) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			out = append(out, KeyBlock{Name: strings.Trim(line, "[]")})
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) != 4 || len(out) == 0 {
			return nil, fmt.Errorf("keys.txt: not a key with default, meaning and example: %s", line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		b := &out[len(out)-1]
		b.Keys = append(b.Keys, Key{
			Names: strings.Split(cells[0], ", "), Default: cells[1], Meaning: cells[2], Example: cells[3],
		})
	}
	return out, nil
}

// The places of a page that are drawn up of the reference: the table of a block of ours, or all blocks of nats-server.
var keysPlace = regexp.MustCompile(`(?s)<!-- keys of ([a-zA-Z.-]+) -->\n.*?<!-- end -->`)

const natsServerKeys = "nats-server"

// Document returns page with the tables of keys as they are now.
func Document(page string) (string, error) {
	blocks, err := Reference()
	if err != nil {
		return "", err
	}
	page = keysPlace.ReplaceAllStringFunc(page, func(place string) string {
		name := keysPlace.FindStringSubmatch(place)[1]
		var b strings.Builder
		for i := range blocks {
			switch {
			case blocks[i].Name == name:
				blocks[i].write(&b)
			case name == natsServerKeys && !blocks[i].own():
				fmt.Fprintf(&b, "### %s\n\n", blocks[i].Name)
				blocks[i].write(&b)
			}
		}
		if b.Len() == 0 {
			err = fmt.Errorf("there are no keys of %q", name)
		}
		return fmt.Sprintf("<!-- keys of %s -->\n%s<!-- end -->", name, strings.TrimLeft(b.String(), "\n"))
	})
	return page, err
}

// write writes the block's table.
func (b *KeyBlock) write(to *strings.Builder) {
	to.WriteString("| key | default | meaning | example |\n|---|---|---|---|\n")
	for i := range b.Keys {
		k := &b.Keys[i]
		names := make([]string, len(k.Names))
		for i, n := range k.Names {
			names[i] = "`" + n + "`"
		}
		fmt.Fprintf(to, "| %s | %s | %s | %s |\n",
			strings.Join(names, ", "), k.Default, k.Meaning+b.state(k), k.Example)
	}
	to.WriteString("\n")
}

// paths are the patterns of served.go for the blocks that have any.
var paths = map[string]string{
	"top level": "", "accounts NAME": "accounts.*.", "limits of an account": "accounts.*.limits.",
	"an export": "accounts.*.exports.*.", "an import": "accounts.*.imports.*.",
	"jetstream": "jetstream.", "tls": "tls.",
}

// state tells what this build does without, or refuses.
func (b *KeyBlock) state(k *Key) string {
	path, listed := paths[b.Name]
	if !listed {
		return ""
	}
	for _, name := range k.Names {
		if why, refused := insecure[path+name]; refused {
			return fmt.Sprintf(". **Refused**: %s", why)
		}
		if slices.Contains(notServed, path+name) {
			return ". *Left aside* by this build, with a warning"
		}
	}
	return ""
}
