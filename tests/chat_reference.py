"""Makes tests/data/chat/templates.json: chat templates of the common kinds and what transformers'
apply_chat_template makes of a few conversations (add_generation_prompt=True).

    python3 -m venv VENV && VENV/bin/pip install transformers jinja2
    VENV/bin/python tests/chat_reference.py

The file names the version of transformers. Templates are written here after the public formats of
the models named. strftime_now is frozen at 2024-07-26T10:00:00."""

import json
import os
from datetime import datetime

import transformers
from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = "2024-07-26T10:00:00"

USER = [{"role": "user", "content": "What is gravity?"}]
SYSTEM = [{"role": "system", "content": "Answer briefly."},
          {"role": "user", "content": "  Why is \"the sky\" <blue>?\n"}]
TURNS = [{"role": "user", "content": "Hallo, wie geht's? \U0001F355"},
         {"role": "assistant", "content": " Gut.  "},
         {"role": "user", "content": "Schön\\n"}]
TOOL = [{"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"type": "function", "id": "123456789",
             "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "x": 0.5}}}]},
        {"role": "tool", "content": "{\"sun\": true}", "tool_call_id": "123456789"}]
TWICE = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
# Each of the names that a message's reasoning comes by, alone and beside others.
REASONING = [{"role": "user", "content": "2+2?"},
             {"role": "assistant", "content": "4", "reasoning": "Two and two."},
             {"role": "user", "content": "3+3?"},
             {"role": "assistant", "thinking": "Twice three.", "reasoning_content": None,
              "content": "6"},
             {"role": "user", "content": "4+4?"},
             {"role": "assistant", "content": "8", "reasoning_content": "Twice four.",
              "thinking": "other", "reasoning": ""},
             {"role": "user", "content": "5+5?"},
             {"role": "assistant", "content": "10", "reasoning": ""},
             {"role": "user", "content": "6+6?"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "What is 'it'"},
                                      {"text": "\u00e9?\n", "type": "text"}]}]
CASES = {"user": USER, "system": SYSTEM, "turns": TURNS, "tool": TOOL, "twice": TWICE,
         "reasoning": REASONING, "parts": PARTS}

BOS, EOS = "<s>", "</s>"
TEMPLATES = {
    "chatml": ("""{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""", "<|im_start|>", "<|im_end|>"),
    "chatml-default-system": ("""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""", "<|im_start|>", "<|im_end|>"),
    "llama-2": ("""{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""", BOS, EOS),
    "llama-3": ("""{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""", "<|begin_of_text|>", "<|eot_id|>"),
    "llama-3.1-date": ("""{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2000" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system message, or none. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""", "<|begin_of_text|>", "<|eot_id|>"),
    "mistral-v1": ("""{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}""", BOS, EOS),
    "mistral-v3-tools": ("""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""", BOS, EOS),
    "zephyr": ("""{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""", BOS, EOS),
    "gemma": ("""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}""", "<bos>", "<eos>"),
    "phi-3": ("""{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}""", BOS, "<|endoftext|>"),
    "qwen-2.5": ("""{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""", None, "<|im_end|>"),
    "qwen-3-thinking": ("""{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" and '</think>' in content and loop.index0 <= ns.last_query_index %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""", None, "<|im_end|>"),
    "deepseek-v2": ("""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}""", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    "deepseek-v3": ("""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<\uff5cUser\uff5c>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none and message['content'] is defined %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<\uff5cAssistant\uff5c>' + content + '<\uff5cend\u2581of\u2581sentence\uff5c>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c>'}}{% endif %}""", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    "alpaca": ("""{{ (messages|selectattr('role', 'equalto', 'system')|list|last).content|trim if (messages|selectattr('role', 'equalto', 'system')|list) else 'Below is an instruction that describes a task. Write a response that appropriately completes the request.' }}

{% for message in messages %}
{% if message['role'] == 'user' %}
### Instruction:
{{ message['content']|trim }}

{% elif message['role'] == 'assistant' %}
### Response:
{{ message['content']|trim }}{{ eos_token }}

{% endif %}
{% endfor %}
{% if add_generation_prompt %}
### Response:
{% endif %}
""", BOS, EOS),
    "vicuna": ("""{%- set ns = namespace(first=true) -%}{{ bos_token }}{%- for message in messages -%}{%- if message['role'] == 'system' -%}{{ message['content'] + ' ' }}{%- elif message['role'] == 'user' -%}{{ 'USER: ' + message['content'] + ' ' }}{%- else -%}{{ 'ASSISTANT: ' + message['content'] + eos_token }}{%- endif -%}{%- set ns.first = false -%}{%- endfor -%}{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}""", BOS, EOS),
    "command-r": ("""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'x' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}""", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "granite-loop-control": ("""{%- for message in messages %}
    {%- if message['role'] == 'tool' %}{% continue %}{% endif %}
    {%- if message['role'] == 'assistant' and not message['content'] %}{% break %}{% endif %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %}""", "<|end_of_text|>", "<|end_of_text|>"),
    "qwen-3-reasoning": ("""{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.reasoning_content is string %}
        {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""", None, "<|im_end|>"),
    "gpt-oss-thinking": ("""{%- for message in messages %}
    {%- if message.thinking %}
        {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
    {%- endif %}
    {{- "<|start|>" + message.role + "<|message|>" + message.content + "<|end|>" }}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}""", None, "<|return|>"),
    "text-parts": ("""{% for message in messages %}
{{ '<' + message.role + '>' }}{% if message.content is string %}{{ message.content }}{% else %}
{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}
{% endif %}{{ eos_token }}
{% endfor %}
{{ messages[0]['content'] }}""", BOS, EOS),
    "dict-and-namespace": ("""{% set ns = namespace(dict(a=1), self=2) %}{{ ns.a + ns.self }}
{{ dict.fromkeys(['k'], 'v') }} {{ dict(messages[0]) }}
{% if messages|length > 1 %}{% set hidden = namespace(_a=1) %}{% endif %}""", BOS, EOS),
    "tojson-options": ("""{{ messages|tojson }}
{{ messages|tojson(indent=2) }}
{{ messages[0]|tojson(ensure_ascii=True, sort_keys=True, separators=(',', ':')) }}
{{ strftime_now("%A, %d %B %Y %H:%M") }}
{% set ns = namespace(total=0) %}{% for message in messages %}{% set ns.total = ns.total + message.content|default('', true)|length %}{% endfor %}{{ ns.total }}
{{ tools is none }} {{ documents is none }} {{ undefined_name }}{{ pad_token is defined }}""", BOS, EOS),
    "generation-block": ("""{{ bos_token }}{% for message in messages %}
{% if message.role == 'assistant' %}
  {% generation %}
{{ message.content }}{{ eos_token }}
  {% endgeneration %}
{% else %}
[{{ message.role|upper }}] {{ message.content }}
{% endif %}
{% endfor %}
{% macro header(role) %}[{{ role|upper }}]{% endmacro %}
{{ header('assistant') if add_generation_prompt }}""", BOS, EOS),
    "smollm2": ("""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""", "<|im_start|>", "<|im_end|>"),
}


class Frozen(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromisoformat(NOW)


def render(template, variables, messages):
    """The text, or null where transformers refuses."""
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [chat_template_utils._normalize_chat_messages(messages)], chat_template=template,
            add_generation_prompt=True, **variables)
        return texts[0]
    except Exception as error:
        print("   refused:", str(error)[:90])
        return None


def main():
    chat_template_utils.datetime = Frozen
    templates = []
    for name, (template, bos, eos) in TEMPLATES.items():
        print(name)
        variables = {"eos_token": eos} if bos is None else {"bos_token": bos, "eos_token": eos}
        cases = [{"messages": messages, "text": render(template, variables, messages)}
                 for messages in CASES.values()]
        templates.append({"name": name, "template": template, "variables": variables,
                          "cases": cases})
    path = os.path.join(HERE, "data", "chat", "templates.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"transformers": transformers.__version__, "now": NOW, "templates": templates},
                  file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(len(templates), "templates")


if __name__ == "__main__":
    main()
