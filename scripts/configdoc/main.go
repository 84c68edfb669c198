// Command configdoc draws up the tables of keys in a page: configdoc docs/config.md.
package main

import (
	"fmt"
	"os"

	"github.com/noetl/ehdb-gateway/internal/config"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "configdoc:", err)
		os.Exit(1)
	}
}

func run(pages []string) error {
	for _, path := range pages {
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := config.Document(string(old))
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a page of the documentation
			return err
		}
	}
	return nil
}
