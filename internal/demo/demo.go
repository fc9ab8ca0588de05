// Package demo is the play that `bridge demo` shows: two sample services, a
// scripted conversation of a simulated Agents API's sessions, and the printed
// trace. It compares everything that came out with the script. The bridge, the
// simulated API and their addresses are the caller's; see Stage.
package demo

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// Stage is what the play needs: everything on it runs already.
type Stage struct {
	// Sim is the simulated Agents API that the bridge under show talks to. It
	// has the sessions of the script.
	Sim *agentsim.Sim
	// APIURL is where Sim is served, with its base path: http://127.0.0.1:1/v1.
	APIURL string
	// Services are what the route table points at.
	Services []*Service
	// Call reads a call from the bridge's journal.
	Call func(ctx context.Context, key journal.Key) (journal.Call, error)
	Out  io.Writer
	// Color allows escape sequences for colours in what is printed.
	Color bool
}

// patience is how long the play waits for all that it waits for: the script
// takes about 3 s.
const patience = 20 * time.Second

// Report is what came of a play.
type Report struct {
	Calls, Requests, Succeeded int
	Took                       time.Duration
	// Differences says what came out otherwise than scripted, a sentence each.
	Differences []string
}

// Play plays the scenes, each session's in order and the sessions side by side,
// and prints each scene when it is over. What differs from the script is
// printed and is in the report. The error is ctx's: the play was cut short.
func Play(ctx context.Context, stage *Stage, scenes []Scene) (Report, error) {
	playing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	started := time.Now()
	p := &player{stage: stage, user: newUser(stage.APIURL)}
	defer p.user.close()
	wait := p.playAll(playing, scenes)
	defer wait()

	t := trace{out: stage.Out, paint: paint(stage.Color)}
	var report Report
	turns := map[string]int{}
	for i, scene := range scenes {
		played := <-p.curtains[i]
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		turns[scene.Session]++
		t.scene(scene, turns[scene.Session], played)
		report.add(played)
	}
	report.Took = time.Since(started)
	t.summary(report, scenes)
	return report, nil
}

func (r *Report) add(played playedScene) {
	for _, c := range played.calls {
		r.Calls++
		r.Requests += len(c.received)
		if c.answered && c.result.Success {
			r.Succeeded++
		}
		r.Differences = append(r.Differences, c.differences...)
	}
	r.Differences = append(r.Differences, played.differences...)
}

// playedScene is what came of one scene.
type playedScene struct {
	calls []playedCall
	// approval is what became of the scene's computer-use approval.
	approval    approval
	differences []string
}

// playedCall is one call as everybody saw it: the agent, the journal and the
// service.
type playedCall struct {
	Call

	answered bool
	result   agentsim.Result
	journal  journal.Call
	service  string
	received []Received

	differences []string
}

// took is the time from the call's entry in the journal to its result's arrival
// at the API.
func (c *playedCall) took() time.Duration {
	if !c.answered || c.journal.CreatedAt.IsZero() {
		return 0
	}
	return max(c.result.At.Sub(c.journal.CreatedAt), 0)
}

// approval is what was seen of a computer-use approval.
type approval struct {
	// waited: it was still pending when every result of its scene had come.
	waited bool
	// given: the script answered it in the place of a person.
	given bool
}

// player plays scenes. The simulated API takes a session's next turn from a
// list that all sessions share, so that setting it and posting the message that
// starts it are one step.
type player struct {
	stage    *Stage
	user     *user
	starting sync.Mutex
	curtains []chan playedScene
}

// playAll begins to play; what came of a scene is sent to its curtain. wait
// waits for the end of all.
func (p *player) playAll(ctx context.Context, scenes []Scene) (wait func()) {
	var sessions sync.WaitGroup
	bySession := map[string][]int{}
	for i, scene := range scenes {
		p.curtains = append(p.curtains, make(chan playedScene, 1))
		bySession[scene.Session] = append(bySession[scene.Session], i)
	}
	for _, indexes := range bySession {
		sessions.Go(func() {
			results := 0
			for turn, i := range indexes {
				results += len(scenes[i].Calls)
				p.curtains[i] <- p.play(ctx, scenes[i], turn, results)
			}
		})
	}
	return sessions.Wait
}

// play plays one scene: the session's turn with this index, after which the
// session has taken so many results.
func (p *player) play(ctx context.Context, scene Scene, turn, results int) (played playedScene) {
	differs := func(err error) bool {
		if err != nil {
			played.differences = append(played.differences, scene.Session+": "+err.Error())
		}
		return err != nil
	}
	if !differs(p.start(ctx, scene, turn)) && !differs(p.stage.Sim.WaitResults(ctx, scene.Session, results)) {
		if scene.Approval {
			differs(p.settle(ctx, scene, &played.approval))
		}
		differs(p.stage.Sim.WaitIdle(ctx, scene.Session))
	}
	for _, call := range scene.Calls {
		played.calls = append(played.calls, p.look(ctx, scene, call))
	}
	return played
}

// start posts the user's message, which starts the scene's turn.
func (p *player) start(ctx context.Context, scene Scene, turn int) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	turns := make([]agentsim.Turn, turn+1)
	turns[turn] = agentsim.Turn{Steps: []agentsim.Step{scene.step()}}
	if err := p.stage.Sim.Load(agentsim.Script{Turns: turns}); err != nil {
		return err
	}
	err := p.user.say(ctx, scene.Session, scene.Message)
	return errors.Join(err, p.stage.Sim.Load(agentsim.Script{}))
}

// settle sees that the approval still waits for a person, and approves it, so
// that the turn can end.
func (p *player) settle(ctx context.Context, scene Scene, a *approval) error {
	id, err := p.user.pendingApproval(ctx, scene.Session)
	if err != nil {
		return err
	}
	a.waited = true
	if err := p.user.approve(ctx, scene.Session, id); err != nil {
		return err
	}
	a.given = true
	return nil
}

// look gathers what is known of a call and compares it with the script.
func (p *player) look(ctx context.Context, scene Scene, call Call) playedCall {
	c := playedCall{Call: call}
	for _, r := range p.stage.Sim.Results(scene.Session) {
		if r.CallID == call.ID {
			c.answered, c.result = true, r
		}
	}
	if c.answered {
		c.journal = p.settled(ctx, journal.Key{SessionID: scene.Session, TurnID: c.result.TurnID, CallID: call.ID})
	}
	for _, s := range p.stage.Services {
		if received := s.Received(scene.Session, call.ID); len(received) > 0 {
			c.service, c.received = s.Name, append(c.received, received...)
		}
	}
	c.differences = c.compare()
	return c
}

// settled waits until the journal takes the call for settled, and gives it as
// far as it came.
func (p *player) settled(ctx context.Context, key journal.Key) journal.Call {
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		call, err := p.stage.Call(ctx, key)
		if err == nil && call.State.Settled() {
			return call
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return call
		}
	}
}
