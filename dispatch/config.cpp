#include "dispatch/config.h"

namespace torch_shark {

Config& config() {
  static Config instance;
  return instance;
}

}  // namespace torch_shark
