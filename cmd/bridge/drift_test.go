package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"functionbridge/internal/agentsim"
)

const driftTable = `version: 1
routes:
  look:
    url: SERVICE/look
    description: Look it up.
    parameters: { type: object, properties: { id: { type: integer } } }
  pay:
    url: SERVICE/pay
    description: Pay it.
    parameters: { type: object }
`

// driftTools lack pay, have an older look, and a function that has no route.
const driftTools = `[{"type":"function","name":"look","description":"Look it up.","parameters":{"type":"object","properties":{"id":{"type":"string"}}}},
	{"type":"function","name":"ship","description":"Ship it.","parameters":{"type":"object"}},{"type":"web_search"}]`

// What an agent may call in vain is warned about once, counted, and shown; a
// reload that mends it is seen.
func TestToolsThatDriftAwayFromTheTableAreShown(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	b := startBridge(t, agentsim.Kind(), driftTable, ok, func(s *settings) { s.ResyncInterval = 50 * time.Millisecond }, &logs)
	o := newOperator(t, b.daemon)
	id := b.sim.CreateSession(agentsim.SessionSpec{Tools: []byte(driftTools)})
	o.post(t, "/admin/sessions", `{"session_id":"`+id+`"}`).want(t, http.StatusOK)
	drift := func() string {
		body := o.get(t, "/admin/sessions/"+pathOf(id)).want(t, http.StatusOK).body
		_, after, _ := strings.Cut(string(body), `"drift":`)
		return strings.TrimSpace(after)
	}
	const want = `{"missing":["ship"],"changed":[{"function":"look","differences":["parameters.properties.id.type: the agent has \"string\", the table \"integer\""]}],"extra":["pay"]}}`
	eventually(t, func() bool { return drift() == want }, drift)
	reads := b.sim.Count(agentsim.GetSession)
	eventually(t, func() bool { return b.sim.Count(agentsim.GetSession) > reads+5 }, drift)
	if n := strings.Count(logs.String(), "has a function that has no route"); n != 1 {
		t.Errorf("the missing route is warned about %d times", n)
	}
	if n := strings.Count(logs.String(), "differs from the route table"); n != 1 {
		t.Errorf("the changed one is warned about %d times", n)
	}
	metrics := string(o.get(t, "/metrics").want(t, http.StatusOK).body)
	for _, line := range []string{`bridge_tool_drift_total{kind="no_route"} 1`, `bridge_tool_drift_total{kind="changed"} 1`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	mended := strings.NewReplacer("integer", "string", "pay:", "ship:", "Pay it.", "Ship it.").Replace(driftTable)
	write(t, filepath.Join(b.dir, "routes.yaml"), []byte(strings.ReplaceAll(mended, "SERVICE", b.service.URL)))
	o.post(t, "/admin/routes/reload", "").want(t, http.StatusOK)
	eventually(t, func() bool { return drift() == `{"missing":[],"changed":[],"extra":[]}}` }, drift)
}

// eventually waits until something holds, and otherwise says what is there.
func eventually(t *testing.T, holds func() bool, is func() string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to be; there is %s", is())
		}
		<-time.After(10 * time.Millisecond)
	}
}

// diffTools runs `bridge tools --diff` against a simulated API.
func diffTools(t *testing.T, sim *agentsim.Sim, table string, args ...string) (code int, out, errOut string) {
	t.Helper()
	api := httptest.NewServer(sim)
	t.Cleanup(api.Close)
	routes := filepath.Join(t.TempDir(), "routes.yaml")
	write(t, routes, []byte(strings.ReplaceAll(table, "SERVICE", "http://service")))
	cmd := exec.Command(os.Args[0], append([]string{"tools"}, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), isSetting), asBridge+"=1", //nolint:forbidigo // the child's environment
		"OPENAI_API_KEY=test", "OPENAI_BASE_URL="+api.URL+"/v1", "BRIDGE_ROUTES="+routes)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestToolsDiffShowsHowALiveAgentDiffers(t *testing.T) {
	t.Parallel()
	sim := agentsim.New(agentsim.Kind())
	t.Cleanup(sim.Close)
	id := sim.CreateSession(agentsim.SessionSpec{Tools: []byte(driftTools)})
	const want = "- ship: the agent has it, and there is no route\n" +
		"~ look: parameters.properties.id.type: the agent has \"string\", the table \"integer\"\n" +
		"+ pay: the table has it, and the agent does not\n"
	if code, out, errOut := diffTools(t, sim, driftTable, "--diff", "--session", id); code != 1 || out != want || errOut != "" {
		t.Errorf("exit %d, printed\n%s%swant 1 and\n%s", code, out, errOut, want)
	}
	same := strings.NewReplacer("integer", "string", "pay:", "ship:", "Pay it.", "Ship it.").Replace(driftTable)
	if code, out, errOut := diffTools(t, sim, same, "--diff", "--session", id); code != 0 || out != "no differences\n" || errOut != "" {
		t.Errorf("of what is the same, exit %d, printed\n%s%s", code, out, errOut)
	}
	if n := sim.Count(agentsim.UpdateSession) + sim.Count(agentsim.PostEvents); n != 0 {
		t.Errorf("a comparison wrote %d times", n)
	}
	if code, _, errOut := diffTools(t, sim, driftTable, "--diff", "--session", "sess_none"); code != 2 || !strings.Contains(errOut, "check the id") {
		t.Errorf("of a session that is none, exit %d, %s", code, errOut)
	}
	for _, args := range [][]string{{"--diff"}, {"--session", id}, {"--diff", "--agent", "a", "--session", id}} {
		if code, _, errOut := diffTools(t, sim, driftTable, args...); code != 2 || errOut == "" {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
	}
}

// The published array is what a session takes, what it shows then is no drift, and
// the official client reads it.
func TestPublishedToolsAreTakenByASession(t *testing.T) {
	t.Parallel()
	sim := agentsim.New(agentsim.Kind())
	t.Cleanup(sim.Close)
	code, published, errOut := diffTools(t, sim, driftTable)
	if code != 0 || errOut != "" {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	id := sim.CreateSession(agentsim.SessionSpec{})
	api := httptest.NewServer(sim)
	t.Cleanup(api.Close)
	update, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/v1/agents/sessions/"+id, strings.NewReader(`{"agent":{"tools":`+published+`}}`))
	must(t, err)
	update.Header.Set("Authorization", "Bearer test")
	update.Header.Set("OpenAI-Beta", "agents=v1")
	update.Header.Set("Content-Type", "application/json")
	res, err := api.Client().Do(update)
	must(t, err)
	must(t, res.Body.Close())
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the session answers %d to the published tools", res.StatusCode)
	}
	if code, out, errOut := diffTools(t, sim, driftTable, "--diff", "--session", id); code != 0 || out != "no differences\n" {
		t.Errorf("what was published differs: exit %d, %s%s", code, out, errOut)
	}
	client := openai.NewClient(option.WithAPIKey("test"), option.WithBaseURL(api.URL+"/v1"))
	live, err := client.Beta.Agents.Sessions.Get(t.Context(), id)
	must(t, err)
	tools := live.Agent.Tools
	if len(tools) != 2 || tools[0].Name != "look" || tools[1].Name != "pay" || tools[0].AsAny() == nil {
		t.Errorf("the official client reads %+v", tools)
	}
}
