// A server over stdio that reads with encoding/json, which matches members without regard to case
// and takes the last of two.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name            string    `json:"name"`
		URI             string    `json:"uri"`
		ProtocolVersion string    `json:"protocolVersion"`
		Arguments       arguments `json:"arguments"`
	} `json:"params"`
}

type arguments struct {
	Text string `json:"text"`
	URL  string `json:"url"`
	Task string `json:"task"`
}

func tool(name string, rest string) json.RawMessage {
	schema := `{"type":"object","properties":{"text":{"type":"string"},"url":{"type":"string"},"task":{"type":"string"}}}`
	return json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":%s%s}`, name, schema, rest))
}

func text(said string) any {
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": said}}}
}

func answer(asked *request, ran *int) any {
	switch asked.Method {
	case "initialize":
		return map[string]any{
			"protocolVersion": asked.Params.ProtocolVersion,
			"capabilities":    map[string]any{"tools": map[string]any{}, "resources": map[string]any{}},
			"serverInfo":      map[string]any{"name": "folding", "version": "1"},
		}
	case "tools/list":
		guarded := `,"security":{"validator":"network_restricted"}`
		return map[string]any{"tools": []any{
			tool("echo", ""), tool("secret", ""), tool("ran", ""), tool("fetch", guarded),
		}}
	case "resources/list":
		return map[string]any{"resources": []any{
			map[string]any{"uri": "test://open", "name": "open"},
		}}
	case "resources/read":
		return map[string]any{"contents": []any{
			map[string]any{"uri": asked.Params.URI, "text": "content of " + asked.Params.URI},
		}}
	case "tools/call":
		switch asked.Params.Name {
		case "secret":
			*ran++
			return text("SECRET")
		case "ran":
			return text(fmt.Sprint(*ran))
		case "fetch":
			return text("fetched " + asked.Params.Arguments.URL)
		default:
			return text(asked.Params.Arguments.Text)
		}
	default:
		return map[string]any{}
	}
}

func main() {
	ran := 0
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if json.Unmarshal(line, &asked) != nil || asked.ID == nil || asked.Method == "" {
			continue
		}
		out.Encode(map[string]any{"jsonrpc": "2.0", "id": asked.ID, "result": answer(&asked, &ran)})
	}
}
