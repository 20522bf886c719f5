/* One solve by CVODE 6: BDF with Newton, everything created and freed within the call, as a caller would. */
#include <string.h>

#include <cvode/cvode.h>
#include <nvector/nvector_serial.h>
#include <sundials/sundials_context.h>
#include <sunlinsol/sunlinsol_band.h>
#include <sunlinsol/sunlinsol_dense.h>
#include <sunmatrix/sunmatrix_band.h>
#include <sunmatrix/sunmatrix_dense.h>
#ifdef WITH_KLU
#include <sunlinsol/sunlinsol_klu.h>
#include <sunmatrix/sunmatrix_sparse.h>
#endif

#include "problems.h"

typedef struct {
  const Problem *problem;
  Data data;
} Context;

static int rhs(realtype t, N_Vector y, N_Vector dy, void *user) {
  const Context *context = user;
  context->problem->rhs(t, NV_DATA_S(y), NV_DATA_S(dy), &context->data);
  return 0;
}

static int dense_jac(realtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *user, N_Vector a, N_Vector b, N_Vector c) {
  const Context *context = user;
  context->problem->dense(t, NV_DATA_S(y), SM_COLS_D(J), &context->data);
  return 0;
}

static int band_jac(realtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *user, N_Vector a, N_Vector b, N_Vector c) {
  const Context *context = user;
  long rows[MOST_ENTRIES];
  double values[MOST_ENTRIES];
  for (long j = 0; j < context->data.n; j++) {
    const int count = context->problem->column(j, NV_DATA_S(y), rows, values, &context->data);
    for (int i = 0; i < count; i++) SM_ELEMENT_B(J, rows[i], j) = values[i];
  }
  return 0;
}

#ifdef WITH_KLU
static int sparse_jac(realtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *user, N_Vector a, N_Vector b, N_Vector c) {
  const Context *context = user;
  sunindextype *starts = SM_INDEXPTRS_S(J), *indices = SM_INDEXVALS_S(J), filled = 0;
  for (long j = 0; j < context->data.n; j++) {
    long rows[MOST_ENTRIES];
    starts[j] = filled;
    const int count = context->problem->column(j, NV_DATA_S(y), rows, SM_DATA_S(J) + filled, &context->data);
    for (int i = 0; i < count; i++) indices[filled + i] = rows[i];
    filled += count;
  }
  starts[context->data.n] = filled;
  return 0;
}
#endif

static long num_entries(const Context *context, const double *y) {
  long rows[MOST_ENTRIES], sum = 0;
  double values[MOST_ENTRIES];
  for (long j = 0; j < context->data.n; j++) sum += context->problem->column(j, y, rows, values, &context->data);
  return sum;
}

/* Solve y' = f up to t_end from y, which then holds the end state; atol is one for all states. `solver` is "dense",
   "band" (bandwidth 2 on both sides) or "klu". counts: steps, calls of f, Jacobians, factorisations.
   Returns 0, CVODE's flag, or -100 for an unknown problem or a solver that is not built in. */
int cvode_solve(const char *name, const char *solver, long n, const double *p, double rtol, double atol, double t_end,
                double *y, long *counts) {
  Context context = {NULL, {n, p}};
  for (int i = 0; i < num_problems; i++)
    if (!strcmp(problems[i].name, name)) context.problem = &problems[i];
  if (!context.problem) return -100;

  SUNContext sun;
  SUNContext_Create(NULL, &sun);
  N_Vector state = N_VMake_Serial(n, y, sun);
  void *memory = CVodeCreate(CV_BDF, sun);
  CVodeInit(memory, rhs, 0.0, state);
  CVodeSStolerances(memory, rtol, atol);
  CVodeSetUserData(memory, &context);
  CVodeSetMaxNumSteps(memory, 10000000);
  CVodeSetErrFile(memory, NULL);
  CVodeSetStopTime(memory, t_end);

  SUNMatrix matrix = NULL;
  SUNLinearSolver linear = NULL;
  CVLsJacFn jac = NULL;
  if (!strcmp(solver, "dense")) {
    matrix = SUNDenseMatrix(n, n, sun), linear = SUNLinSol_Dense(state, matrix, sun), jac = dense_jac;
  } else if (!strcmp(solver, "band")) {
    matrix = SUNBandMatrix(n, 2, 2, sun), linear = SUNLinSol_Band(state, matrix, sun), jac = band_jac;
  }
#ifdef WITH_KLU
  else if (!strcmp(solver, "klu")) {
    matrix = SUNSparseMatrix(n, n, num_entries(&context, y), CSC_MAT, sun);
    linear = SUNLinSol_KLU(state, matrix, sun), jac = sparse_jac;
  }
#endif
  int flag = -100;
  if (linear) {
    CVodeSetLinearSolver(memory, linear, matrix);
    CVodeSetJacFn(memory, jac);
    double t;
    flag = CVode(memory, t_end, state, &t, CV_NORMAL);
    if (flag > 0) flag = 0; /* stopped at t_end */
    CVodeGetNumSteps(memory, counts);
    CVodeGetNumRhsEvals(memory, counts + 1);
    CVodeGetNumJacEvals(memory, counts + 2);
    CVodeGetNumLinSolvSetups(memory, counts + 3);
    SUNLinSolFree(linear);
    SUNMatDestroy(matrix);
  }
  CVodeFree(&memory);
  N_VDestroy(state);
  SUNContext_Free(&sun);
  return flag;
}
