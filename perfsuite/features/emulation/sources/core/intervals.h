// A set of bytes, as intervals of addresses that do not touch each other.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>

namespace emulated {

class Intervals {
 public:
  void add(uintptr_t begin, uintptr_t end) {
    auto at = first_reaching(begin);
    while (at != ends_.end() && at->first <= end) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ends_.erase(at);
    }
    ends_[begin] = end;
  }

  bool overlaps(uintptr_t begin, uintptr_t end) const {
    auto at = ends_.upper_bound(begin);
    if (at != ends_.begin() && std::prev(at)->second > begin) return true;
    return at != ends_.end() && at->first < end;
  }

  // Remove [begin, end) and call `each` with every interval that was removed.
  void remove(uintptr_t begin, uintptr_t end, const std::function<void(uintptr_t, uintptr_t)>& each) {
    auto at = first_reaching(begin);
    while (at != ends_.end() && at->first < end) {
      auto [low, high] = *at;
      uintptr_t from = std::max(low, begin), to = std::min(high, end);
      at = ends_.erase(at);
      if (low < from) ends_[low] = from;
      if (to < high) at = std::next(ends_.emplace(to, high).first);
      if (from < to) each(from, to);
    }
  }

 private:
  std::map<uintptr_t, uintptr_t>::iterator first_reaching(uintptr_t address) {
    auto at = ends_.upper_bound(address);
    return at != ends_.begin() && std::prev(at)->second >= address ? std::prev(at) : at;
  }

  std::map<uintptr_t, uintptr_t> ends_;  // by the beginning
};
}  // namespace emulated
