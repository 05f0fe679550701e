// SPDX-License-Identifier: Apache-2.0

// Renders a Helm chart as `helm template` does, with the engine that Helm is made of: Go's text/template and Masterminds'
// sprig. Reads one request (JSON) from each line of its input and answers with one line: the rendered text of every
// template, or the error. It knows what our chart uses of Helm: values merged over values.yaml, include, tpl, required, fail, toYaml,
// toJson, .Files.Get, .Release, .Chart and .Capabilities.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/semver"
	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type request struct {
	Chart       string                 `json:"chart"`
	Release     string                 `json:"release"`
	Namespace   string                 `json:"namespace"`
	KubeVersion string                 `json:"kubeVersion"`
	Values      map[string]interface{} `json:"values"`
}

type answer struct {
	Objects map[string]string      `json:"objects,omitempty"`
	Values  map[string]interface{} `json:"values,omitempty"`
	Error   string                 `json:"error,omitempty"`
}

type files struct{ dir string }

func (f files) Get(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(f.dir, name))
	return string(data), err
}

type kubeVersion struct{ Version, Major, Minor string }

// Values given go before the chart's; maps are merged, null takes a key away, everything else replaces.
func merge(base, over map[string]interface{}) map[string]interface{} {
	out := map[string]interface{}{}
	for key, value := range base {
		out[key] = value
	}
	for key, value := range over {
		below, isMap := value.(map[string]interface{})
		under, wasMap := out[key].(map[string]interface{})
		switch {
		case value == nil:
			delete(out, key)
		case isMap && wasMap:
			out[key] = merge(under, below)
		default:
			out[key] = value
		}
	}
	return out
}

// Through JSON, as Helm's YAML library does: maps have string keys, which come out sorted, and numbers are float64.
func readYAML(name string, out interface{}) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var value interface{}
	if err = yaml.Unmarshal(data, &value); err != nil {
		return err
	}
	if data, err = json.Marshal(value); err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

func toYAML(value interface{}) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	var plain interface{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err = decoder.Decode(&plain); err != nil {
		return "", err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err = encoder.Encode(numbers(plain)); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// json.Number would be written as a string.
func numbers(value interface{}) interface{} {
	switch v := value.(type) {
	case map[string]interface{}:
		for key := range v {
			v[key] = numbers(v[key])
		}
	case []interface{}:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return value
}

func newTemplate(chart string) (*template.Template, []string, error) {
	t := template.New("chart")
	functions := sprig.TxtFuncMap()
	delete(functions, "env") // Helm takes both away
	delete(functions, "expandenv")
	functions["toYaml"] = toYAML
	functions["fail"] = func(text string) (string, error) { return "", errors.New(text) }
	functions["required"] = func(text string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(text)
		}
		return value, nil
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out strings.Builder
		err := t.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	t.Funcs(functions).Option("missingkey=zero")
	names, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		if _, err = t.New(path.Base(name)).Parse(string(text)); err != nil {
			return nil, nil, err
		}
	}
	return t, names, nil
}

func render(r request) (map[string]string, map[string]interface{}, error) {
	var meta, values map[string]interface{}
	if err := readYAML(filepath.Join(r.Chart, "Chart.yaml"), &meta); err != nil {
		return nil, nil, err
	}
	if err := readYAML(filepath.Join(r.Chart, "values.yaml"), &values); err != nil {
		return nil, nil, err
	}
	version, err := semver.NewVersion(r.KubeVersion)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := semver.NewConstraint(meta["kubeVersion"].(string))
	if err != nil {
		return nil, nil, err
	}
	if !wanted.Check(version) {
		return nil, nil, fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", meta["kubeVersion"], r.KubeVersion)
	}
	title := map[string]interface{}{}
	for key, value := range meta {
		title[strings.ToUpper(key[:1])+key[1:]] = value
	}
	values = merge(values, r.Values)
	t, names, err := newTemplate(r.Chart)
	if err != nil {
		return nil, nil, err
	}
	data := map[string]interface{}{
		"Chart":  title,
		"Values": values,
		"Files":  files{r.Chart},
		"Release": map[string]interface{}{"Name": r.Release, "Namespace": r.Namespace, "Service": "Helm", "Revision": 1,
			"IsInstall": true, "IsUpgrade": false},
		"Capabilities": map[string]interface{}{"KubeVersion": kubeVersion{r.KubeVersion, fmt.Sprint(version.Major()), fmt.Sprint(version.Minor())}},
	}
	out := map[string]string{}
	for _, name := range names {
		base := path.Base(name)
		if strings.HasPrefix(base, "_") {
			continue
		}
		var text strings.Builder
		if err := t.ExecuteTemplate(&text, base, data); err != nil {
			return nil, nil, err
		}
		// missingkey=zero still writes this for what is nil; Helm takes it out too.
		out[base] = strings.ReplaceAll(text.String(), "<no value>", "")
	}
	return out, values, nil
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	for input.Scan() {
		var r request
		var a answer
		err := json.Unmarshal(input.Bytes(), &r)
		if err == nil {
			a.Objects, a.Values, err = render(r)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if output.Encode(a) != nil {
			os.Exit(1)
		}
	}
}
