// A plugin of GCC, behind -fsanitize=thread, when everything is inlined. It takes away the access
// hooks of what cannot lie in a pool, which most are, and gives some to what had none:
//   M.  memset, memcpy, memmove and memcmp that the compiler would expand, being builtins of a
//   known
//       size (std::array::fill, std::copy), become calls of the wrapped functions.
// An access stays without a hook if
//   E1. it is one of a variable, or of memory that points-to analysis knows to be local: the pool
//   is
//       nobody's variable;
//   E2. what is loaded or stored is a pointer: pools have offsets, they may be mapped anywhere;
//   E3. it is one of, or goes through a member of, a class that has a destructor to run, or virtual
//       functions: the pool outlives the process, so nobody would run it; or a pointer (E2).
// Atomic accesses keep their hooks: the scheduler switches threads there.
// A store that was wrongly left out is found by the audit. That no load is,
// -fplugin-arg-elsewhere-verify is for: the hooks become calls of __everleaf_elsewhere, which ends
// the program where the pool is touched (EVERLEAF_CRASH_VERIFY).
//
// Of GCC's headers each needs those before it.
// clang-format off
#include <gcc-plugin.h>
#include <context.h>
#include <tree-pass.h>
#include <tree.h>
#include <gimple.h>
#include <gimple-iterator.h>
#include <ssa.h>
#include <stringpool.h>
#include <tree-cfg.h>
#include <cp/cp-tree.h>
// clang-format on

int plugin_is_GPL_compatible;  // Apache-2.0 and GPLv3 are

namespace {

bool g_verify = false;
tree g_elsewhere = NULL_TREE;

bool starts_with(const char* text, const char* with) {
  return strncmp(text, with, strlen(with)) == 0;
}

// A hook of a load or store that is no atomic access.
bool is_hook(const gimple* statement) {
  if (!is_gimple_call(statement)) return false;
  const tree function = gimple_call_fndecl(statement);
  if (function == NULL_TREE || DECL_NAME(function) == NULL_TREE) return false;
  const char* const name = IDENTIFIER_POINTER(DECL_ASSEMBLER_NAME(function));
  return starts_with(name, "__tsan_read") || starts_with(name, "__tsan_write") ||
         starts_with(name, "__tsan_unaligned_");
}

bool is_store(const gimple* hook) {
  const tree function = gimple_call_fndecl(hook);
  return strstr(IDENTIFIER_POINTER(DECL_ASSEMBLER_NAME(function)), "write") != nullptr;
}

// The statement that the hook is for: behind it, with other hooks and their addresses between.
gimple* accessing(gimple_stmt_iterator at) {
  for (gsi_next(&at); !gsi_end_p(at); gsi_next(&at)) {
    gimple* const statement = gsi_stmt(at);
    if (is_gimple_debug(statement) || is_hook(statement)) continue;
    if (gimple_vuse(statement) != NULL_TREE) return statement;
  }
  return nullptr;
}

// What is accessed; null: not known.
tree accessed(const gimple_stmt_iterator& at) {
  gimple* const hook = gsi_stmt(at);
  tree address = gimple_call_arg(hook, 0);
  if (TREE_CODE(address) == SSA_NAME) {
    const gimple* const made = SSA_NAME_DEF_STMT(address);
    if (is_gimple_assign(made) && gimple_assign_rhs_code(made) == ADDR_EXPR)
      address = gimple_assign_rhs1(made);
  }
  if (TREE_CODE(address) == ADDR_EXPR) return TREE_OPERAND(address, 0);
  // A pointer alone: what is there says the statement.
  gimple* const statement = accessing(at);
  if (statement == nullptr || !is_gimple_assign(statement)) return NULL_TREE;
  const tree side = is_store(hook) ? gimple_assign_lhs(statement) : gimple_assign_rhs1(statement);
  const tree base = get_base_address(side);
  if (base == NULL_TREE || TREE_CODE(base) != MEM_REF) return NULL_TREE;
  return TREE_OPERAND(base, 0) == address && integer_zerop(TREE_OPERAND(base, 1)) ? side
                                                                                  : NULL_TREE;
}

// E1
bool is_to_variable(tree pointer) {
  const ptr_info_def* const points = SSA_NAME_PTR_INFO(pointer);
  return points != nullptr && points->pt.anything == 0 && points->pt.nonlocal == 0 &&
         points->pt.escaped == 0 && points->pt.ipa_escaped == 0 &&
         points->pt.vars_contains_nonlocal == 0 && points->pt.vars != nullptr;
}

bool is_of_variable(tree what) {
  const tree base = get_base_address(what);
  if (base == NULL_TREE) return false;
  if (DECL_P(base)) return true;
  return TREE_CODE(base) == MEM_REF && TREE_CODE(TREE_OPERAND(base, 0)) == SSA_NAME &&
         is_to_variable(TREE_OPERAND(base, 0));
}

// Bases are members, too.
bool has_pointer(tree type) {
  while (TREE_CODE(type) == ARRAY_TYPE) type = TREE_TYPE(type);
  if (POINTER_TYPE_P(type)) return true;
  if (TREE_CODE(type) != RECORD_TYPE) return false;  // of a union it may be another member
  for (tree member = TYPE_FIELDS(type); member != NULL_TREE; member = DECL_CHAIN(member)) {
    if (TREE_CODE(member) == FIELD_DECL && has_pointer(TREE_TYPE(member))) return true;
  }
  return false;
}

bool is_of_process(tree type) {
  return CLASS_TYPE_P(type) &&
         (TYPE_HAS_NONTRIVIAL_DESTRUCTOR(type) || TYPE_CONTAINS_VPTR_P(type) || has_pointer(type));
}

// E3
bool is_in_object(tree what) {
  if (is_of_process(TREE_TYPE(what))) return true;
  for (; handled_component_p(what); what = TREE_OPERAND(what, 0)) {
    if (TREE_CODE(what) != COMPONENT_REF) continue;
    const tree owner = DECL_CONTEXT(TREE_OPERAND(what, 1));
    if (owner != NULL_TREE && is_of_process(owner)) return true;
  }
  return false;
}

bool cannot_be_in_pool(const gimple_stmt_iterator& at) {
  const tree what = accessed(at);
  if (what == NULL_TREE) return false;
  return is_of_variable(what) || POINTER_TYPE_P(TREE_TYPE(what)) || is_in_object(what);
}

tree no_throw(tree function) {
  TREE_NOTHROW(function) = 1;
  return function;
}

// As the wrapped function's name; null: no such builtin.
const char* wrapped(gimple* statement) {
  if (!gimple_call_builtin_p(statement, BUILT_IN_NORMAL)) return nullptr;
  switch (DECL_FUNCTION_CODE(gimple_call_fndecl(statement))) {
    case BUILT_IN_MEMSET:
      return "__wrap_memset";
    case BUILT_IN_MEMCPY:
      return "__wrap_memcpy";
    case BUILT_IN_MEMMOVE:
      return "__wrap_memmove";
    case BUILT_IN_MEMCMP:
    case BUILT_IN_MEMCMP_EQ:
      return "__wrap_memcmp";
    default:
      return nullptr;
  }
}

// M, but where all of its memory is that of variables (E1).
void wrap(gimple* statement, const char* name) {
  bool local = true;
  for (unsigned i = 0; i < gimple_call_num_args(statement); ++i) {
    const tree argument = gimple_call_arg(statement, i);
    if (!POINTER_TYPE_P(TREE_TYPE(argument))) continue;
    local = local && (TREE_CODE(argument) == ADDR_EXPR
                          ? is_of_variable(TREE_OPERAND(argument, 0))
                          : TREE_CODE(argument) == SSA_NAME && is_to_variable(argument));
  }
  if (local) return;
  const tree builtin = gimple_call_fndecl(statement);
  const tree function = no_throw(build_fn_decl(name, TREE_TYPE(builtin)));
  DECL_PURE_P(function) = DECL_PURE_P(builtin);
  gimple_call_set_fndecl(statement, function);
  update_stmt(statement);
}

tree elsewhere() {
  if (g_elsewhere == NULL_TREE) {
    const tree type = build_function_type_list(void_type_node, ptr_type_node, NULL_TREE);
    g_elsewhere = no_throw(build_fn_decl("__everleaf_elsewhere", type));
  }
  return g_elsewhere;
}

const pass_data kPass = {GIMPLE_PASS, "elsewhere", OPTGROUP_NONE,  TV_NONE, PROP_ssa | PROP_cfg, 0,
                         0,           0,           TODO_update_ssa};

class Pass final : public gimple_opt_pass {
 public:
  explicit Pass(gcc::context* context) : gimple_opt_pass(kPass, context) {}
  unsigned int execute(function* f) override {
    basic_block block;
    FOR_EACH_BB_FN(block, f) {
      for (gimple_stmt_iterator at = gsi_start_bb(block); !gsi_end_p(at);) {
        if (const char* const name = wrapped(gsi_stmt(at))) wrap(gsi_stmt(at), name);
        if (!is_hook(gsi_stmt(at)) || !cannot_be_in_pool(at)) {
          gsi_next(&at);
        } else if (g_verify) {
          gimple_call_set_fndecl(gsi_stmt(at), elsewhere());
          gsi_next(&at);
        } else {
          unlink_stmt_vdef(gsi_stmt(at));
          gsi_remove(&at, true);
        }
      }
    }
    return 0;
  }
};

}  // namespace

int plugin_init(plugin_name_args* plugin, plugin_gcc_version*) {
  for (int i = 0; i < plugin->argc; ++i) {
    if (strcmp(plugin->argv[i].key, "verify") == 0) g_verify = true;
  }
  register_pass_info info{new Pass(g), "tsan", 1, PASS_POS_INSERT_AFTER};
  register_callback(plugin->base_name, PLUGIN_PASS_MANAGER_SETUP, nullptr, &info);
  return 0;
}
