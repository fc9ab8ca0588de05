package agentsim_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"

	"functionbridge/internal/agentsim"
)

// The SDK's own helper runs a turn to its end: it decodes every event and answers every call.
func TestOfficialHelperCompletesATurnWithFunctionCalls(t *testing.T) {
	t.Parallel()
	for name, opts := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { helperTurn(t, opts) })
		})
	}
}

func helperTurn(t *testing.T, opts agentsim.Options) {
	t.Helper()
	sim, client := serve(t, opts)
	api := sdk(client)
	id := sim.CreateSession(agentsim.SessionSpec{})
	var cities []string
	stream := api.Beta.Agents.Sessions.Stream(t.Context(), id, openai.AgentSessionStreamParams{
		Input: "call get_weather {\"city\":\"Oslo\"}\ncall get_weather \"{\\\"city\\\":\\\"Rome\\\"}\"\n\n@text 3\ncall get_time {}\n\nThat is all.",
		ToolHandlers: map[string]openai.AgentToolHandler{
			"get_weather": func(_ context.Context, args map[string]any) (any, error) {
				cities = append(cities, fmt.Sprint(args["city"]))
				return "21 °C", nil
			},
			"get_time": func(context.Context, map[string]any) (any, error) { return map[string]any{"h": 12}, nil },
		},
	})
	result, err := stream.FinalResult()
	if err != nil {
		t.Fatalf("the helper gave up: %v", err)
	}
	if got := result.OutputText(); got != "That is all." {
		t.Errorf("final text = %q", got)
	}
	if fmt.Sprint(cities) != "[Oslo Rome]" {
		t.Errorf("handlers saw %q, want Oslo and Rome once each", cities)
	}
	if got := sim.Results(id); len(got) != 3 {
		t.Errorf("results = %+v, want three", got)
	}
}

func TestCreationStreamOfTheSDKRunsTheFirstTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := serve(t, agentsim.Hostile())
		api := sdk(client)
		stream := api.Beta.Agents.Sessions.NewStreaming(t.Context(), openai.BetaAgentSessionNewParams{
			Agent:       openai.BetaAgentSessionNewParamsAgent{Model: openai.String("any")},
			Environment: openai.EnvironmentParamUnion{OfParamNone: &openai.EnvironmentParamNone{}},
			Input:       openai.BetaAgentSessionNewParamsInputUnion{OfString: openai.String("call f {\"a\":1}")},
			ToolHandlers: map[string]openai.AgentToolHandler{
				"f": func(context.Context, map[string]any) (any, error) { return "one", nil },
			},
		})
		result, err := openai.BetaAgentSessionFinalResult(stream)
		if err != nil {
			t.Fatalf("creation stream: %v", err)
		}
		if got := result.OutputText(); got != "f: one" {
			t.Errorf("final text = %q, want the function's answer", got)
		}
	})
}

func TestSDKDecodesSessionsTurnsItemsAndAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		api := sdk(client).Beta.Agents
		tools := []byte(`[{"type":"function","name":"f","parameters":{"type":"object"},"async":true},{"type":"web_search"}]`)
		id := sim.CreateSession(agentsim.SessionSpec{ID: "s/1 ü", AgentID: "agent_x", Tools: tools, Metadata: map[string]string{"team": "a b"}})
		turn := sim.Play(id, agentsim.Step{agentsim.Call("g", `{"n":1}`).WithID("c1"), agentsim.Approval(), agentsim.Connection(), agentsim.Unknown()})

		s, err := api.Sessions.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if s.ID != id || s.Status != "requires_action" || s.Metadata["team"] != "a b" || !s.Agent.Tools[0].Async {
			t.Errorf("session = %s", s.RawJSON())
		}
		var kinds []string
		for _, a := range s.RequiredActions {
			kinds = append(kinds, fmt.Sprintf("%T", a.AsAny()))
		}
		want := "[openai.AgentSessionRequiredActionFunctionCall openai.AgentSessionRequiredActionComputerUseApprovalRequest openai.AgentSessionRequiredActionEnvironmentConnection <nil>]"
		if fmt.Sprint(kinds) != want {
			t.Errorf("required actions decode as %v", kinds)
		}
		got, err := api.Sessions.Turns.Get(t.Context(), id, turn)
		if err != nil || got.Status != "waiting" || got.SessionID != id {
			t.Errorf("turn = %+v, %v", got, err)
		}
		items, err := api.Sessions.Turns.Items.List(t.Context(), id, turn, openai.BetaAgentSessionTurnItemListParams{Order: "asc"})
		if err != nil || len(items.Data) != 2 || items.Data[0].Type != "message" || items.Data[1].Name != "g" {
			t.Errorf("items = %+v, %v", items, err)
		}
		agent, err := api.Get(t.Context(), "agent_x")
		if err != nil || len(agent.Tools) != 2 || agent.Tools[0].Name != "f" {
			t.Errorf("agent = %+v, %v", agent, err)
		}
		time.Sleep(time.Second) // fake clock
	})
}

func TestListingFiltersAndPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		api := sdk(client)
		for i := range 7 {
			sim.CreateSession(agentsim.SessionSpec{
				ID: fmt.Sprint("s", i), AgentID: fmt.Sprint("agent", i%2),
				Metadata: map[string]string{"k": strconv.Itoa(i % 3), "all": "x=y&z"},
			})
		}
		for _, tt := range []struct {
			name  string
			query openai.BetaAgentSessionListParams
			want  string
		}{
			{"newest first", openai.BetaAgentSessionListParams{Limit: openai.Int(3)}, "[s6 s5 s4 s3 s2 s1 s0]"},
			{"oldest first", openai.BetaAgentSessionListParams{Limit: openai.Int(2), Order: "asc"}, "[s0 s1 s2 s3 s4 s5 s6]"},
			{"after", openai.BetaAgentSessionListParams{After: openai.String("s2")}, "[s1 s0]"},
			{"agent", openai.BetaAgentSessionListParams{AgentID: openai.String("agent1")}, "[s5 s3 s1]"},
			{"metadata", openai.BetaAgentSessionListParams{Metadata: &map[string]string{"k": "0", "all": "x=y&z"}}, "[s6 s3 s0]"},
			{"both", openai.BetaAgentSessionListParams{AgentID: openai.String("agent0"), Metadata: &map[string]string{"k": "0"}}, "[s6 s0]"},
			{"none", openai.BetaAgentSessionListParams{Metadata: &map[string]string{"nope": ""}}, "[]"},
		} {
			pages := api.Beta.Agents.Sessions.ListAutoPaging(t.Context(), tt.query)
			got := []string{}
			for pages.Next() {
				got = append(got, pages.Current().ID)
			}
			if pages.Err() != nil || fmt.Sprint(got) != tt.want {
				t.Errorf("%s: got %v (%v), want %s", tt.name, got, pages.Err(), tt.want)
			}
		}
	})
}

func TestUpdateReplacesToolsAndMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{Tools: []byte(`[{"type":"function","name":"old"}]`), Metadata: map[string]string{"a": "1"}})
		api := sdk(client).Beta.Agents.Sessions
		s, err := api.Update(t.Context(), id, openai.BetaAgentSessionUpdateParams{
			Metadata: map[string]string{"b": "2"},
			Agent: openai.BetaAgentSessionUpdateParamsAgent{Tools: &[]openai.AgentToolParamUnion{{OfParamFunction: &openai.AgentToolParamFunction{
				Name: "new", Description: "d", Parameters: map[string]any{"type": "object"},
			}}}},
		})
		if err != nil || s.Agent.Tools[0].Name != "new" || compact(t, s.Metadata) != `{"b":"2"}` {
			t.Fatalf("update gave %+v, %v", s, err)
		}
		if _, err := api.Delete(t.Context(), id); err != nil {
			t.Errorf("delete: %v", err)
		}
		if got := get(t, client, "/v1/agents/sessions/"+id); got.status != 404 {
			t.Errorf("a deleted session is answered %d", got.status)
		}
	})
}
