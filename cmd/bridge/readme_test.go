package main

import (
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// readme is the text of the README.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section is what stands under a heading, up to the next heading of its rank or above.
func section(t *testing.T, heading string) string {
	t.Helper()
	text := readme(t)
	for _, rank := range []string{"## ", "### "} {
		_, after, found := strings.Cut(text, "\n"+rank+heading+"\n")
		if !found {
			continue
		}
		lines := strings.SplitAfter(after, "\n")
		inCode := false
		for i, line := range lines {
			inCode = inCode != strings.HasPrefix(line, "```")
			mark, _, isHeading := strings.Cut(line, " ")
			if !inCode && isHeading && strings.Trim(mark, "#") == "" && mark != "" && len(mark) < len(rank) {
				return strings.Join(lines[:i], "")
			}
		}
		return after
	}
	t.Fatalf("the README has no section %q", heading)
	return ""
}

// readmeTable gives the rows of the table in a section whose first column is called first.
func readmeTable(t *testing.T, heading, first string) [][]string {
	t.Helper()
	lines := strings.Split(section(t, heading), "\n")
	for i, line := range lines {
		if cells := cellsOf(line); len(cells) == 0 || cells[0] != first {
			continue
		}
		var rows [][]string
		for _, row := range lines[i+2:] {
			cells := cellsOf(row)
			if len(cells) == 0 {
				break
			}
			rows = append(rows, cells)
		}
		return rows
	}
	t.Fatalf("the section %q has no table with a column %q", heading, first)
	return nil
}

// cellsOf splits a line of a table; none when it is not one.
func cellsOf(line string) []string {
	inner, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil
	}
	const escaped = "\x00"
	cells := strings.Split(strings.TrimSuffix(strings.ReplaceAll(inner, `\|`, escaped), "|"), "|")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, escaped, "|"))
	}
	return cells
}

// code is what stands in the first pair of backticks.
func code(cell string) string {
	_, after, _ := strings.Cut(cell, "`")
	inside, _, _ := strings.Cut(after, "`")
	return inside
}

// environmentDefault is the default of a variable in the config struct.
func environmentDefault(t *testing.T, name string) string {
	t.Helper()
	for field := range reflect.TypeFor[environment]().Fields() {
		if "BRIDGE_"+strings.ToUpper(splitWords(field.Name)) == name {
			return field.Tag.Get("default")
		}
	}
	t.Fatalf("there is no %s", name)
	return ""
}

func TestReadmeListsEverySetting(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for _, row := range readmeTable(t, "Settings", "variable") {
		documented[code(row[0])] = code(row[1])
	}
	refused := map[string]bool{}
	for _, row := range readmeTable(t, "Settings", "refused") {
		name, _, _ := strings.Cut(code(row[0]), "=")
		refused[name] = true
	}
	known := map[string]string{}
	for _, name := range variableNames() {
		known[name] = environmentDefault(t, name)
	}
	for field := range reflect.TypeFor[apiEnvironment]().Fields() {
		known["OPENAI_"+strings.ToUpper(splitWords(field.Name))] = field.Tag.Get("default")
	}
	for name, value := range known {
		shown, ok := documented[name]
		if ok == refused[name] && name != "BRIDGE_DATABASE_URL" {
			t.Errorf("%s must stand in exactly one of the two tables", name)
		}
		if ok && shown != value {
			t.Errorf("the default of %s is %q, and the README says %q", name, value, shown)
		}
	}
	for name := range documented {
		if _, ok := known[name]; !ok {
			t.Errorf("the README lists %s, which is no setting", name)
		}
	}
	for name := range refused {
		if err := withValues(t, map[string]string{name: "postgres://h/d"}); !strings.Contains(err, name) || !strings.Contains(err, "not supported yet") {
			t.Errorf("%s: %q, want it refused", name, err)
		}
	}
}

// withValues parses settings that are right but for these, and gives the error's text.
func withValues(t *testing.T, values map[string]string) string {
	t.Helper()
	e, api := environment{}, apiEnvironment{APIKey: "k"}
	emptyIsDefault(&e)
	emptyIsDefault(&api)
	for name, value := range values {
		target, prefix := reflect.ValueOf(&e).Elem(), "BRIDGE_"
		if strings.HasPrefix(name, "OPENAI_") {
			target, prefix = reflect.ValueOf(&api).Elem(), "OPENAI_"
		}
		field := target.FieldByNameFunc(func(f string) bool { return prefix+strings.ToUpper(splitWords(f)) == name })
		if !field.IsValid() {
			t.Fatalf("there is no %s", name)
		}
		field.SetString(value)
	}
	if _, err := e.parse(api); err != nil {
		return err.Error()
	}
	return ""
}

// Whatever the README names anywhere is something that exists.
func TestReadmeNamesNothingThatDoesNotExist(t *testing.T) {
	t.Parallel()
	listed := func(heading, first string) map[string]bool {
		names := map[string]bool{}
		for _, row := range readmeTable(t, heading, first) {
			name, _, _ := strings.Cut(code(row[0]), "=")
			names[name] = true
		}
		return names
	}
	settings, refused, metrics := listed("Settings", "variable"), listed("Settings", "refused"), listed("Metrics", "metric")
	for _, name := range regexp.MustCompile(`\b(BRIDGE|OPENAI)_[A-Z_]+`).FindAllString(readme(t), -1) {
		if !settings[name] && !refused[name] && !kubernetesService.MatchString(name) {
			t.Errorf("the README names the variable %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`\bbridge_[a-z_]+`).FindAllString(readme(t), -1) {
		if !metrics[name] {
			t.Errorf("the README names the metric %s", name)
		}
	}
	for _, path := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme(t), -1) {
		if _, err := os.Stat("../../" + path[1]); err != nil {
			t.Errorf("the README links to %s: %v", path[1], err)
		}
	}
	for _, anchor := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(readme(t), -1) {
		heading := `(?mi)^##+ ` + strings.ReplaceAll(regexp.QuoteMeta(anchor[1]), "-", " ") + `$`
		if !regexp.MustCompile(heading).MatchString(readme(t)) {
			t.Errorf("the README links to the section %s", anchor[1])
		}
	}
}

func TestReadmeListsEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	rows := map[string]string{}
	for _, row := range readmeTable(t, "Commands", "command") {
		name, _, _ := strings.Cut(strings.TrimPrefix(code(row[0]), "bridge "), " ")
		rows[name] = code(row[0]) + " " + row[1]
	}
	for _, cmd := range newRootCmd(t.Context()).Commands() {
		row, ok := rows[cmd.Name()]
		delete(rows, cmd.Name())
		if !ok || !strings.HasPrefix(row, "bridge "+cmd.Use) {
			t.Errorf("the README does not list bridge %s", cmd.Use)
		}
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+)`).FindAllStringSubmatch(cmd.LocalFlags().FlagUsages(), -1) {
			if flag[1] != "help" && !strings.Contains(row, "`--"+flag[1]) {
				t.Errorf("the README does not name --%s of %s", flag[1], cmd.Name())
			}
		}
		for _, flag := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(row, -1) {
			if cmd.Flag(flag[1]) == nil {
				t.Errorf("%s has no --%s, which the README names", cmd.Name(), flag[1])
			}
		}
	}
	if len(rows) > 0 {
		t.Errorf("the README lists commands that do not exist: %v", rows)
	}
}

func TestReadmeListsEveryMetric(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), "version: 1\nroutes:\n  greet: { url: SERVICE/greet, circuit_breaker: { failures: 3 } }\n", ok, nil)
	id := b.sim.CreateSession(agentsim.SessionSpec{})
	if err := b.daemon.sessions.Follow(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	turn := b.sim.Play(id, agentsim.Step{agentsim.Call("greet", `{}`).WithID("call_1")})
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "call_1"}, journal.Confirmed)
	served := metricsOf(t, "http://"+b.daemon.adminAddr+"/metrics")
	for _, row := range readmeTable(t, "Metrics", "metric") {
		name := code(row[0])
		labels, ok := served[name]
		delete(served, name)
		var documented []string
		for _, m := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, m[1])
		}
		slices.Sort(documented)
		if !ok || !slices.Equal(documented, labels) {
			t.Errorf("%s is served: %t, with labels %v; the README says %v", name, ok, labels, documented)
		}
	}
	if len(served) > 0 {
		t.Errorf("the README lacks %v", served)
	}
}

// metricsOf gives the names of the bridge's own metrics and their labels.
func metricsOf(t *testing.T, url string) map[string][]string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (bridge_\S+) `).FindAllStringSubmatch(string(text), -1) {
		sample := regexp.MustCompile(`(?m)^` + family[1] + `(?:_count)?(?:\{(.*)\})? `).FindStringSubmatch(string(text))
		if sample == nil {
			t.Fatalf("%s has no sample", family[1])
		}
		found[family[1]] = nil
		for _, label := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(sample[1], -1) {
			found[family[1]] = append(found[family[1]], label[1])
		}
		slices.Sort(found[family[1]])
	}
	return found
}

func TestReadmeListsEveryEndpointOfOperators(t *testing.T) {
	t.Parallel()
	var documented, served []string
	for _, row := range readmeTable(t, "Admin API", "endpoint") {
		documented = append(documented, code(row[0]))
	}
	for path, item := range readDocument(t).Paths.Map() {
		for method := range item.Operations() {
			if path != "/healthz" && path != "/readyz" {
				served = append(served, method+" "+path)
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("the README lists\n%v\nand there is\n%v", documented, served)
	}
}

func TestReadmeListsEveryState(t *testing.T) {
	t.Parallel()
	var documented []journal.State
	for _, row := range readmeTable(t, "The promise", "state") {
		documented = append(documented, journal.State(code(row[0])))
	}
	if !slices.Equal(documented, journal.States()) {
		t.Errorf("the README lists %v, want %v", documented, journal.States())
	}
}

// A call of every header that the README lists, and of no other of the bridge's.
func TestReadmeListsEveryHeaderThatAServiceReceives(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, greetTable, hello)
	if code, _, errOut := command(t, "", "call", "--routes", b.routes, "greet", "{}"); code != 0 {
		t.Fatal(errOut)
	}
	requests, _ := b.received()
	header := requests[0].Header.Clone()
	header.Del("Content-Length") // HTTP's own
	for _, row := range readmeTable(t, "What a service receives", "header") {
		name, says := code(row[0]), code(row[1])
		got := header.Get(name)
		header.Del(name)
		if got == "" || (strings.HasPrefix(row[1], "`") && !strings.HasPrefix(got, strings.TrimSuffix(says, "VERSION"))) {
			t.Errorf("%s is %q, and the README says %s", name, got, row[1])
		}
	}
	if len(header) > 0 {
		t.Errorf("the README lacks %v", header)
	}
}

// What the demo prints varies in times alone.
func TestReadmeShowsWhatTheDemoPrints(t *testing.T) {
	t.Parallel()
	exit, out, errOut := command(t, "", "demo")
	if exit != 0 {
		t.Fatal(errOut)
	}
	varying := regexp.MustCompile(`\d+(\.\d+)? m?s\b`)
	printed := map[string]bool{}
	for line := range strings.SplitSeq(out, "\n") {
		printed[varying.ReplaceAllString(line, "TIME")] = true
	}
	_, shown, _ := strings.Cut(section(t, "A look"), "```text\n")
	shown, _, found := strings.Cut(shown, "```")
	if lines := strings.Count(shown, "\n"); !found || lines < 20 {
		t.Fatalf("the README shows %d lines of the demo", lines)
	}
	for line := range strings.SplitSeq(shown, "\n") {
		if !printed[varying.ReplaceAllString(line, "TIME")] {
			t.Errorf("the demo does not print %q", line)
		}
	}
}
