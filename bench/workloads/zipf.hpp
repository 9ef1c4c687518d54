// Zipf-distributed ranks: rank r of 0..size-1 comes with probability proportional to
// 1 / (r + 1)^exponent. Rejection-inversion after W. Hormann and G. Derflinger,
// "Rejection-inversion to generate variates from monotone discrete distributions" (ACM TOMACS 6(3),
// 1996): exact for every exponent > 0 (1 included), constant set-up, about 1.1 tries a number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "workloads/random.hpp"

namespace everleaf::bench {

class Zipf {
 public:
  Zipf(std::uint64_t size, double exponent)
      : size_(static_cast<double>(size)),
        exponent_(exponent),
        integral_first_(integral(1.5) - 1.0),
        integral_last_(integral(size_ + 0.5)),
        shortcut_(2.0 - integral_inverse(integral(2.5) - density(2.0))) {}

  std::uint64_t operator()(Random& random) const {
    while (true) {
      const double u = integral_last_ + random.unit() * (integral_first_ - integral_last_);
      const double x = integral_inverse(u);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, size_);
      if (k - x <= shortcut_ || u >= integral(k + 0.5) - density(k)) {
        return static_cast<std::uint64_t>(k) - 1;
      }
    }
  }

 private:
  [[nodiscard]] double density(double x) const { return std::exp(-exponent_ * std::log(x)); }

  // An integral of density, (x^(1-e) - 1) / (1-e), written so that e = 1 gives log(x).
  [[nodiscard]] double integral(double x) const {
    const double log_x = std::log(x);
    return expm1_over((1.0 - exponent_) * log_x) * log_x;
  }

  [[nodiscard]] double integral_inverse(double y) const {
    const double t = std::max(y * (1.0 - exponent_), -1.0);  // below -1 by rounding only
    return std::exp(log1p_over(t) * y);
  }

  static double expm1_over(double x) {
    return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1.0 + x / 2.0;
  }
  static double log1p_over(double x) {
    return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1.0 - x / 2.0;
  }

  double size_;
  double exponent_;
  double integral_first_;
  double integral_last_;
  double shortcut_;
};

}  // namespace everleaf::bench
