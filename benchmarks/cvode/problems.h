/* A right-hand side with its Jacobian, as the driver wants them: dense, or the entries of one column. */
#ifndef PROBLEMS_H
#define PROBLEMS_H

typedef struct {
  long n;          /* states */
  const double *p; /* parameters; used by the large problems only */
} Data;

typedef struct {
  const char *name;
  void (*rhs)(double t, const double *y, double *dy, const Data *data);
  void (*dense)(double t, const double *y, double **J, const Data *data); /* J[column][row], zero before; or NULL */
  int (*column)(long j, const double *y, long *rows, double *values, const Data *data); /* returns how many; or NULL */
} Problem;

extern const Problem problems[];
extern const int num_problems;
#define MOST_ENTRIES 8 /* of a column */

#endif
