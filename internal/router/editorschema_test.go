package router_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"functionbridge/internal/router"
)

// beyondSchema lists the bad fixtures that the JSON Schema for editors takes as
// good, each with what a schema cannot say.
func beyondSchema() map[string]string {
	const (
		twoPlaces   = "it compares two places of the file"
		otherFile   = "what is missing may stand in another file of a directory"
		environment = "it does not know the environment"
		position    = "YAML itself: an editor tells it without a schema"
		references  = "it does not resolve references"
		numberText  = "it sees a number's value, not how it is written"
		otherFiles  = "it reads no other files"
		programs    = "it does not know jq"
	)
	return map[string]string{
		"min-wait-above-max-wait":                    twoPlaces,
		"min-wait-above-default-max-wait":            twoPlaces,
		"duplicate-header-in-another-case":           twoPlaces,
		"template-argument-not-allowed":              twoPlaces,
		"template-no-argument-allowed":               twoPlaces,
		"recover-needs-what-parameters-do-not-allow": twoPlaces,
		"template-of-defaults-not-allowed":           twoPlaces,
		"upstream-unknown":                           otherFile,
		"defaults-upstream-unknown":                  otherFile,
		"upstream-without-path":                      otherFile,
		"path-without-upstream":                      otherFile,
		"url-missing":                                otherFile,
		"routes-missing":                             otherFile,
		"env-unset":                                  environment,
		"url-unset":                                  environment,
		"env-line-break":                             environment,
		"env-fragment":                               environment,
		"env-not-a-url":                              environment,
		"env-query-before-path":                      environment,
		"env-touches-template-host":                  environment,
		"alias-bomb":                                 position,
		"nested-too-deep":                            position,
		"merge-text":                                 position,
		"key-number":                                 position,
		"key-boolean":                                position,
		"key-null":                                   position,
		"parameters-number-as-key":                   position,
		"tag-unknown":                                position,
		"tag-binary":                                 position,
		"parameters-ref-file":                        references,
		"parameters-ref-host":                        references,
		"parameters-ref-relative":                    references,
		"parameters-ref-id":                          references,
		"parameters-ref-nowhere":                     references,
		"parameters-ref-anchor-nowhere":              references,
		"parameters-ref-circle":                      references,
		"parameters-hexadecimal":                     numberText,
		"auth-beside-header":                         twoPlaces,
		"auth-beside-user-of-url":                    twoPlaces,
		"auth-beside-user-of-variable":               environment,
		"auth-header-name-of-a-variable":             environment,
		"auth-token-url-of-a-variable":               environment,
		"sign-secret-of-a-variable":                  environment,
		"auth-files":                                 otherFiles,
		"sign-files":                                 otherFiles,
		"tls-files":                                  otherFiles,
		"version-float":                              numberText,
		"jq-syntax":                                  programs,
		"jq-names":                                   programs,
		"jq-repeats":                                 programs,
		"jq-patterns":                                programs,
		"body-of-delete-by-default":                  twoPlaces,
	}
}

func TestEditorSchemaAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	schema := editorSchema(t)
	for _, path := range slices.Concat(fixtures(t, "good"), fixtures(t, "odd")) {
		if err := validate(t, schema, path); err != nil {
			t.Errorf("%s: the schema refuses it: %v", path, err)
		}
	}
	beyond := beyondSchema()
	for _, path := range fixtures(t, "bad") {
		name := filepath.Base(path[:len(path)-len(".yaml")])
		err := validate(t, schema, path)
		reason, excused := beyond[name]
		delete(beyond, name)
		switch {
		case err == nil && !excused:
			t.Errorf("%s: the schema takes it", name)
		case err != nil && excused:
			t.Errorf("%s: the schema refuses it too, although %s: %v", name, reason, err)
		}
	}
	for name := range beyond {
		t.Errorf("%s: no such fixture", name)
	}
}

// A fixture may hold many bad upstreams: each of them is bad alone.
func TestEditorSchemaAgreesOnEachUpstream(t *testing.T) {
	t.Parallel()
	schema := editorSchema(t)
	beyond := beyondSchema()
	for _, path := range slices.Concat(fixtures(t, "bad"), fixtures(t, "good")) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var table struct {
			Upstreams map[string]yaml.Node `yaml:"upstreams"`
		}
		if _, excused := beyond[strings.TrimSuffix(filepath.Base(path), ".yaml")]; excused || yaml.Unmarshal(data, &table) != nil || len(table.Upstreams) < 2 {
			continue
		}
		for name, upstream := range table.Upstreams {
			alone, err := yaml.Marshal(map[string]any{"version": 1, "routes": map[string]any{}, "upstreams": map[string]*yaml.Node{name: &upstream}})
			if err != nil {
				t.Fatal(err)
			}
			_, parserErr := router.Parse("f.yaml", alone, fixtureEnv())
			if schemaErr := validateText(t, schema, alone); (parserErr == nil) != (schemaErr == nil) && !ofTheEnvironment(parserErr) {
				t.Errorf("%s: %s\nparser: %v\nschema: %v", path, alone, parserErr, schemaErr)
			}
		}
	}
}

// ofTheEnvironment says that the parser refuses the value of a variable.
func ofTheEnvironment(parserErr error) bool {
	return parserErr != nil && (strings.Contains(parserErr.Error(), "is not set") || strings.Contains(parserErr.Error(), "must not be empty") ||
		strings.Contains(parserErr.Error(), "must not hold a line break") || strings.Contains(parserErr.Error(), "holds the value of"))
}

// Values put together by chance reach corners that no fixture was written for.
func TestEditorSchemaAgreesOnValuesMadeByChance(t *testing.T) {
	t.Parallel()
	schema := editorSchema(t)
	tables := []string{
		"version: 1\nroutes: { f: %s }\n",
		"version: 1\nroutes: { f: { url: %s } }\n",
		"version: 1\nupstreams: { u: { url: \"http://h\" } }\nroutes: { f: { upstream: u, path: %s } }\n",
		"version: 1\nroutes: { f: { url: \"http://h\", recover: { path: %s } } }\n",
		"version: 1\nroutes: { f: { url: \"http://h\", headers: { X-A: %s } } }\n",
		"version: 1\nroutes: { f: { url: \"http://h\", headers: { Host: %s } } }\n",
		"version: 1\nroutes: { f: { url: \"http://h\", query: { a: %s } } }\n",
		upstreamWith("auth: { bearer: %s }"),
		upstreamWith("auth: { basic: { username: %s, password: a } }"),
		upstreamWith("auth: { header: { name: %s, value: a } }"),
		upstreamWith("auth: { oauth2: { token_url: %s, client_id: a, client_secret: b } }"),
		upstreamWith("auth: { oauth2: { token_url: \"http://h\", client_id: a, client_secret: b, scopes: [%s] } }"),
		upstreamWith("tls: { server_name: %s }"),
	}
	chance := rand.New(rand.NewPCG(1, 2)) // the same values each time
	good := 0
	for i := range 6000 {
		value := chanceValue(chance, i%len(tables))
		text := []byte(fmt.Sprintf(tables[i%len(tables)], strconv.QuoteToASCII(value)))
		// Whatever the variable is called, it has a value that fits everywhere.
		_, parserErr := router.Parse("f.yaml", text, router.Env{Lookup: func(string) (string, bool) { return "1", true }})
		var node yaml.Node
		if err := yaml.Unmarshal(text, &node); err != nil {
			t.Fatal(err)
		}
		document, err := asJSON(&node, 0)
		if err != nil {
			t.Fatal(err)
		}
		schemaErr := schema.Validate(document)
		if parserErr == nil {
			good++
		}
		if (parserErr == nil) != (schemaErr == nil) && !knownByValueOnly(value, parserErr) {
			t.Errorf("%s\nparser: %v\nschema: %v", text, parserErr, schemaErr)
		}
	}
	if good < 250 {
		t.Errorf("only %d values were good: the comparison says little", good)
	}
}

func upstreamWith(settings string) string {
	return "version: 1\nupstreams: { u: { url: \"https://h\", " + settings + " } }\nroutes: {}\n"
}

// chanceValue strings together what has a meaning in some place.
func chanceValue(chance *rand.Rand, kind int) string {
	tokens := strings.Fields("http:// https:// HTTP:// ftp:// host h.example 127.0.0.1 [::1] : :80 :0 :65536 :080 / // ? & = # %20 %2 %2e %2F %5c . .. /../ /./ a b=1 é " +
		"$ $$ ${V} ${V:-80} ${V:-?} ${ } { {a} {/a} {?a} {&a} {a,b} {a*} {a.b} {a..b} {call.id} {call.ID} {call.id*} {call} {session.agent_id} {session.metadata.x} " +
		"{session.metadata.x?} {?session.metadata.x?} {session.metadata.x?*} {session.metadata} {session.metadatax} {session.x} {callx.y} {+a} {#a} {.a} {a:3} {a?} {} {a,} " +
		"{/call.idempotency_key} {call.idempotency_keys} \\ \" | ^ ` < user:pw@ @ ; ! ' ( * + , ~ _ -")
	tokens = append(tokens, " ", "\t", "\x7f", "\u0085")
	var value strings.Builder
	if (kind < 2 || kind == 10) && chance.IntN(4) > 0 {
		value.WriteString("http://host")
	}
	if (kind == 2 || kind == 3) && chance.IntN(4) > 0 {
		value.WriteString("/")
	}
	for range 1 + chance.IntN(6) {
		value.WriteString(tokens[chance.IntN(len(tokens))])
	}
	return value.String()
}

// knownByValueOnly says that the parser refuses a URL for what a variable puts
// into it.
func knownByValueOnly(value string, parserErr error) bool {
	return strings.Contains(value, "${V") && parserErr != nil && strings.Contains(parserErr.Error(), "bad URL")
}

func editorSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("../../api/routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("routes.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate reads a file as an editor does, YAML into JSON, and checks it.
func validate(t *testing.T, schema *jsonschema.Schema, path string) error {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return validateText(t, schema, data)
}

func validateText(t *testing.T, schema *jsonschema.Schema, data []byte) error {
	t.Helper()
	var documents []any
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); err != nil {
			if len(documents) > 0 || err.Error() != "EOF" {
				break
			}
			return err
		}
		document, err := asJSON(&node, 0)
		if err != nil {
			return err
		}
		documents = append(documents, document)
	}
	if len(documents) != 1 {
		return fmt.Errorf("%d documents", len(documents))
	}
	return schema.Validate(documents[0])
}

// asJSON reads nodes with the YAML library's own rules but for merge keys.
func asJSON(n *yaml.Node, depth int) (any, error) {
	if depth > 150 {
		return nil, nil
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return asJSON(n.Content[0], depth)
	case yaml.AliasNode:
		if depth > 20 {
			return nil, errors.New("endless")
		}
		return asJSON(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content[:min(len(n.Content), 3)] {
			v, err := asJSON(item, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		return mappingAsJSON(n, depth)
	default:
		return scalarAsJSON(n)
	}
}

func mappingAsJSON(n *yaml.Node, depth int) (any, error) {
	object, own := map[string]any{}, map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			return nil, errors.New("a key that is no scalar")
		}
		if own[key.Value] {
			return nil, fmt.Errorf("duplicate key %s", key.Value)
		}
		own[key.Value] = true
		value, err := asJSON(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if key.Tag != "!!merge" {
			object[key.Value] = value
			continue
		}
		sources, isList := value.([]any)
		if !isList {
			sources = []any{value}
		}
		for _, source := range sources {
			merged, _ := source.(map[string]any)
			for k, v := range merged {
				if _, known := object[k]; !known {
					object[k] = v
				}
			}
		}
	}
	return object, nil
}

func scalarAsJSON(n *yaml.Node) (any, error) {
	if n.Tag == "!!timestamp" || (n.Tag == "!!str" && n.Style&yaml.TaggedStyle == 0) {
		return n.Value, nil
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}
