// Renders a Helm chart with what Helm itself is made of: Go's text/template and sprig.
// SPDX-License-Identifier: Apache-2.0
//
//	go run render_chart.go CHART RELEASE [VALUES.yaml]
//
// Prints the objects; values of the file win over the chart's.  Only what charts of this repository
// use: no subcharts, no hooks, no capabilities of a cluster.  A value that does not exist is an error.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

// Files of the chart, as templates see them.
type files struct{ folder string }

func (f files) Get(name string) string {
	content, err := os.ReadFile(filepath.Join(f.folder, name))
	if err != nil {
		return ""
	}
	return string(content)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render_chart:", err)
		os.Exit(1)
	}
}

func values(path string) map[string]interface{} {
	content, err := os.ReadFile(path)
	fail(err)
	out := map[string]interface{}{}
	fail(yaml.Unmarshal(content, &out))
	return out
}

// Maps are merged key by key, everything else is replaced.
func merge(into, from map[string]interface{}) {
	for key, value := range from {
		below, isMap := value.(map[string]interface{})
		if old, ok := into[key].(map[string]interface{}); ok && isMap {
			merge(old, below)
		} else {
			into[key] = value
		}
	}
}

func functions(all *template.Template) template.FuncMap {
	out := sprig.TxtFuncMap()
	out["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	out["include"] = func(name string, data interface{}) (string, error) {
		var text bytes.Buffer
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	return out
}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: render_chart CHART RELEASE [VALUES.yaml]"))
	}
	chart := os.Args[1]
	merged := values(filepath.Join(chart, "values.yaml"))
	if len(os.Args) > 3 {
		merge(merged, values(os.Args[3]))
	}
	data := map[string]interface{}{
		"Values":  merged,
		"Chart":   values(filepath.Join(chart, "Chart.yaml")),
		"Release": map[string]interface{}{"Name": os.Args[2], "Namespace": "default"},
		"Files":   files{chart},
	}
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(functions(all))
	names, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	fail(err)
	sort.Strings(names)
	for _, name := range names {
		content, err := os.ReadFile(name)
		fail(err)
		_, err = all.New(name).Parse(string(content))
		fail(err)
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "_") {
			continue
		}
		var text bytes.Buffer
		fail(all.ExecuteTemplate(&text, name, data))
		fmt.Printf("---\n%s\n", text.String())
	}
}
