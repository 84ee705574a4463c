#include "planner/plan.h"

#include <limits>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "layout/kv_table.h"

namespace transload::planner {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& field, std::string_view what) {
  throw Error(Kind::kBadInput, "plan: field '" + field + "' " + std::string(what) +
                                   "; write a plan with --dry-run --json");
}

// Puts fields into an object.
class Writer {
 public:
  template <class T>
  void operator()(const char* field, const T& value) {
    out_[field] = value;
  }
  void operator()(const char* field, const layout::Shares& shares) {
    out_[field] = {{"device", shares.device}, {"host", shares.host}, {"disk", shares.disk}};
  }
  void operator()(const char* field, const std::array<int64_t, layout::kTiers>& tiers) {
    out_[field] = {{"device", tiers[0]}, {"host", tiers[1]}, {"disk", tiers[2]}};
  }
  void operator()(const char* field, Work work) {
    out_[field] = work == Work::kGenerate ? "generate" : "score";
  }
  void operator()(const char* field, AttentionSite site) {
    out_[field] = site == AttentionSite::kDevice ? "device" : "host";
  }
  template <class T>
  void optional(const char* field, const T& value) {
    (*this)(field, value);
  }
  json take() { return std::move(out_); }

 private:
  json out_ = json::object();
};

// Takes fields from an object; `path` is put before their names in errors.
class Reader {
 public:
  Reader(const json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) fail(path_.empty() ? "(all)" : path_, "must be an object");
    if (!path_.empty()) path_ += '.';
  }

  void operator()(const char* field, bool& value) {
    if (!at(field).is_boolean()) fail(path_ + field, "must be true or false");
    value = at(field).get<bool>();
  }
  void operator()(const char* field, std::string& value) {
    if (!at(field).is_string()) fail(path_ + field, "must be a text");
    value = at(field).get<std::string>();
  }
  template <class T>
  requires std::is_integral_v<T>
  void operator()(const char* field, T& value) {
    const json& there = at(field);
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<T>::max());
    const bool fits = there.is_number_integer() &&
                      (there.is_number_unsigned() || there.get<int64_t>() >= 0) &&
                      there.get<uint64_t>() <= kMost;
    if (!fits) fail(path_ + field, "must be a whole number of at least 0");
    value = there.get<T>();
  }
  void operator()(const char* field, double& value) {
    if (!at(field).is_number() || at(field).get<double>() < 0)
      fail(path_ + field, "must be a number of at least 0");
    value = at(field).get<double>();
  }
  void operator()(const char* field, layout::Shares& shares) {
    Reader inner(at(field), path_ + field);
    inner("device", shares.device);
    inner("host", shares.host);
    inner("disk", shares.disk);
    inner.finish();
  }
  void operator()(const char* field, std::array<int64_t, layout::kTiers>& tiers) {
    Reader inner(at(field), path_ + field);
    inner("device", tiers[0]);
    inner("host", tiers[1]);
    inner("disk", tiers[2]);
    inner.finish();
  }
  void operator()(const char* field, Work& work) {
    work = choice(field, "generate", "score") ? Work::kScore : Work::kGenerate;
  }
  void operator()(const char* field, AttentionSite& site) {
    site = choice(field, "device", "host") ? AttentionSite::kHost : AttentionSite::kDevice;
  }
  // Keeps what `value` is where the field is absent.
  template <class T>
  void optional(const char* field, T& value) {
    if (object_.contains(field)) (*this)(field, value);
  }
  void finish() const {
    for (const auto& item : object_.items())
      if (!seen_.contains(item.key())) fail(path_ + item.key(), "is unknown");
  }

 private:
  const json& at(const char* field) {
    const auto there = object_.find(field);
    if (there == object_.end()) fail(path_ + field, "is missing");
    seen_.insert(field);
    return *there;
  }
  bool choice(const char* field, const char* first, const char* second) {
    std::string text;
    (*this)(field, text);
    if (text != first && text != second)
      fail(path_ + field, std::string("must be ") + first + " or " + second);
    return text == second;
  }

  const json& object_;
  std::string path_;
  std::set<std::string> seen_;
};

// The one list of a plan's fields.
template <class Plan, class Visitor>
void visit_fields(Plan& plan, Visitor& visit) {
  visit("model", plan.model);
  visit("work", plan.work);
  visit("single_tier", plan.single_tier);
  visit("weights", plan.weights);
  visit("kv", plan.kv);
  visit("activations", plan.activations);
  visit("batch_size", plan.batch_size);
  visit("num_batches", plan.num_batches);
  visit("prefill_tokens", plan.prefill_tokens);
  visit("chunk_tokens", plan.chunk_tokens);
  visit("max_tokens", plan.max_tokens);
  visit.optional("kv_bits", plan.kv_bits);  // plans written before it was a choice lack it
  visit("visit_buffers", plan.visit_buffers);
  visit("attention", plan.attention);
  visit("piece_bytes", plan.piece_bytes);
  visit("weight_ring_bytes", plan.weight_ring_bytes);
  visit("staging_bytes", plan.staging_bytes);
  visit("kv_blocks", plan.kv_blocks);
  visit("kv_ring_device_blocks", plan.kv_ring_device_blocks);
  visit("kv_ring_host_blocks", plan.kv_ring_host_blocks);
  visit("threads", plan.threads);
  visit("link_bytes_per_s", plan.link_bytes_per_s);
  visit("disk_bytes_per_s", plan.disk_bytes_per_s);
  visit("budget_bytes", plan.budget_bytes);
  visit("reserve_bytes", plan.reserve_bytes);
}

}  // namespace

nlohmann::json to_json(const Plan& plan) {
  Writer writer;
  visit_fields(plan, writer);
  return writer.take();
}

Plan plan_from_json(const nlohmann::json& json) {
  Plan plan;
  Reader reader(json, "");
  visit_fields(plan, reader);
  reader.finish();
  if (!layout::is_kv_bits(plan.kv_bits)) fail("kv_bits", "must be 32 or 16");
  for (const auto& [name, count] :
       {std::pair("batch_size", plan.batch_size), std::pair("num_batches", plan.num_batches),
        std::pair("prefill_tokens", plan.prefill_tokens)}) {
    if (count > std::numeric_limits<int32_t>::max()) fail(name, "is more than any machine holds");
  }
  return plan;
}

}  // namespace transload::planner
