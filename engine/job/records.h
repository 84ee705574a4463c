// What is written for a request: a line of JSON, the same bytes for the same answer.
#pragma once

#include <span>
#include <string>

#include "engine/job/job.h"

namespace transload::engine {

// A request's answer in the form that its line asks for. A completion a sample, in their order.
void append_record(std::string& out, const Request& request, std::span<const Completion> samples);
void append_record(std::string& out, const std::string& id_json, const Score& score);
void append_record(std::string& out, const LineError& error);

// Those of a batch file, as OpenAI writes them. Ids are made of the line's number, "created" is 0:
// the same job gives the same bytes.
//   success  "response" with status 200 and a text_completion or chat.completion as body
//   failure  "response" with status 400 and {"error"} as body; status 500 where the line is not at
//            fault. "error" is null: it is for requests that got no response.
void append_batch_record(std::string& out, const Request& request,
                         std::span<const Completion> samples);
void append_batch_record(std::string& out, const LineError& error);

// The line number in the id of a batch record; 0 where it is none of ours.
int64_t batch_line(std::string_view id);

}  // namespace transload::engine
